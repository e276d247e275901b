"""The families of Transformers that the decoder expresses exactly: their names for its modules.

GPT-2, Llama, Qwen3, OLMo 2, Mistral, and LFM3 where all its layers are attention; and our own class, which ships with
a checkpoint. ``hub/family_configs.py`` translates their configurations.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seedbed.hub.exported import SEEDBED
from seedbed.model import Decoder
from seedbed.model.norm import FusedLinear

_LAYER = re.compile(r"(?<=^layers\.)\d+(?=\.)")


@dataclass(frozen=True)
class Family:
    """How a family of Transformers names and stores the decoder's modules."""

    model_type: str
    """In `config.json`."""
    architecture: str
    """The class that predicts the next token."""
    modules: Mapping[str, tuple[str, ...]]
    """Path of a module of ours -> those of theirs, one for each block of a fused map that they have apart; `*` is the
    number of the layer."""
    transposed: bool = False
    """Linear maps of the layers are stored as (d_in, d_out): Conv1D."""

    def places(self, parameter: str) -> list[str]:
        """Their names of what is our ``parameter``, in the order of its blocks. Raises KeyError for what they lack."""
        path, _, kind = parameter.rpartition(".")
        layer = _LAYER.search(path)
        theirs = self.modules[_LAYER.sub("*", path)]
        return [f"{name.replace('*', layer[0] if layer else '*')}.{kind}" for name in theirs]


def _llama(attn_norm: str, mlp_norm: str) -> dict[str, tuple[str, ...]]:
    layer, attention, mlp = "model.layers.*", "model.layers.*.self_attn", "model.layers.*.mlp"
    return {
        "embed": ("model.embed_tokens",),
        "layers.*.attn_norm": (f"{layer}.{attn_norm}",),
        "layers.*.attn.qkv": (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
        "layers.*.attn.q_norm": (f"{attention}.q_norm",),
        "layers.*.attn.k_norm": (f"{attention}.k_norm",),
        "layers.*.attn.o": (f"{attention}.o_proj",),
        "layers.*.mlp_norm": (f"{layer}.{mlp_norm}",),
        "layers.*.mlp.gate_up": (f"{mlp}.gate_proj", f"{mlp}.up_proj"),
        "layers.*.mlp.down": (f"{mlp}.down_proj",),
        "norm": ("model.norm",),
        "head": ("lm_head",),
    }


_GPT2 = {
    "embed": ("transformer.wte",),
    "pos": ("transformer.wpe",),
    "layers.*.attn_norm": ("transformer.h.*.ln_1",),
    "layers.*.attn.qkv": ("transformer.h.*.attn.c_attn",),
    "layers.*.attn.o": ("transformer.h.*.attn.c_proj",),
    "layers.*.mlp_norm": ("transformer.h.*.ln_2",),
    "layers.*.mlp.up": ("transformer.h.*.mlp.c_fc",),
    "layers.*.mlp.down": ("transformer.h.*.mlp.c_proj",),
    "norm": ("transformer.ln_f",),
    "head": ("lm_head",),
}
_LFM3_LAYER = "model.layers.*"
_LFM3 = {
    "embed": ("model.embed_tokens",),
    "layers.*.attn_norm": (f"{_LFM3_LAYER}.operator_norm",),
    "layers.*.attn.qkv": tuple(f"{_LFM3_LAYER}.self_attn.{part}_proj" for part in "qkvg"),
    "layers.*.attn.q_norm": (f"{_LFM3_LAYER}.self_attn.q_norm",),
    "layers.*.attn.k_norm": (f"{_LFM3_LAYER}.self_attn.k_norm",),
    "layers.*.attn.o": (f"{_LFM3_LAYER}.self_attn.o_proj",),
    "layers.*.mlp_norm": (f"{_LFM3_LAYER}.ffn_norm",),
    "layers.*.mlp.gate_up": (f"{_LFM3_LAYER}.feed_forward.w1", f"{_LFM3_LAYER}.feed_forward.w3"),
    "layers.*.mlp.down": (f"{_LFM3_LAYER}.feed_forward.w2",),
    "norm": ("model.embedding_norm",),
    "head": ("lm_head",),
}
_SEEDBED = {
    "embed": ("model.embed_tokens",),
    "pos": ("model.embed_positions",),
    **{f"layers.*.{name}": (f"model.layers.*.{name}",) for name in (
        "attn_norm", "attn.qkv", "attn.q_norm", "attn.k_norm", "attn.o",
        "mlp_norm", "mlp.gate_up", "mlp.up", "mlp.down",
    )},
    "norm": ("model.norm",),
    "head": ("lm_head",),
}  # fmt: skip
_PRE = _llama("input_layernorm", "post_attention_layernorm")
_POST = _llama("post_attention_layernorm", "post_feedforward_layernorm")

FAMILIES = {
    family.model_type: family
    for family in (
        Family("gpt2", "GPT2LMHeadModel", _GPT2, transposed=True),
        Family("llama", "LlamaForCausalLM", _PRE),
        Family("qwen3", "Qwen3ForCausalLM", _PRE),
        Family("olmo2", "Olmo2ForCausalLM", _POST),
        Family("mistral", "MistralForCausalLM", _PRE),
        Family("lfm3", "Lfm3ForCausalLM", _LFM3),
        Family(SEEDBED, "SeedbedForCausalLM", _SEEDBED),
    )
}
"""By the `model_type` of their configuration."""


def to_ours(family: Family, model: Decoder, parameter: str, read: Callable[[str], Tensor]) -> Tensor:
    """Our ``parameter`` from theirs, which ``read`` gives by name: the same numbers of the same type, in our layout."""
    tensors = [read(name) for name in family.places(parameter)]
    if _turned(family, model, parameter):
        tensors = [tensor.T for tensor in tensors]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def to_theirs(family: Family, model: Decoder, parameter: str, tensor: Tensor) -> dict[str, Tensor]:
    """Their parameters from ``tensor``, our ``parameter`` of ``model``; views of it where they are laid out alike."""
    names = family.places(parameter)
    owner = model.get_submodule(parameter.rpartition(".")[0])
    rows = list(owner.blocks.values()) if isinstance(owner, FusedLinear) and len(names) > 1 else [len(tensor)]
    parts = tensor.split(rows)
    if _turned(family, model, parameter):
        parts = [part.T for part in parts]
    return {name: part.contiguous() for name, part in zip(names, parts, strict=True)}


def _turned(family: Family, model: Decoder, parameter: str) -> bool:
    path, _, kind = parameter.rpartition(".")
    in_layer = _LAYER.search(path) is not None
    return family.transposed and in_layer and kind == "weight" and isinstance(model.get_submodule(path), nn.Linear)
