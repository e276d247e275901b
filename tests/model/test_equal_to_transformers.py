"""Families of Transformers are configurations of the decoder: the same weights give the same logits and gradients."""

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from seedbed.config import Config
from seedbed.config.model import RopeScaling
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_
from seedbed.model import Decoder, KVCache
from seedbed.model.rope import rotations

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 48, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
OURS = [
    "model.vocab_size=64", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=48", "model.norm_eps=1e-5",
    "model.attention.n_kv_heads=2", "model.ffn.d_ff=48",
]  # fmt: skip
ROPE = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
OLMO2 = ["model.norm_placement=post", "model.attention.qk_norm=whole"]
LLAMA3 = ["model.rope_theta=5e5", "model.rope_scaling={factor: 8, original_max_seq_len: 16}"]
QWEN3 = ["model.attention.qk_norm=head", "model.attention.head_dim=12"]
FAMILIES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Olmo2": (OLMO2, {}),
    "Llama": (LLAMA3, {"rope_parameters": ROPE}),
    "Qwen3": (QWEN3, {"head_dim": 12}),
    "Mistral": ([], {"sliding_window": None, "head_dim": 8}),
}


def make(*overrides: str) -> Decoder:
    model = Decoder(Config.load(None, [*OURS, *overrides]).model)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter, mean=1.0, std=0.2, generator=torch.Generator().manual_seed(2))
    return model


def tensors(model: Decoder) -> dict[str, Tensor]:
    """The parameters of ours, or their gradients in their places, by the names of Transformers."""
    a, found = model.config.attention, {}
    assert a.n_kv_heads and a.head_dim
    norms = ("input_layernorm", "post_attention_layernorm")
    if model.config.norm_placement == "post":
        norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    for i, layer in enumerate(model.layers):
        blocks = {"self_attn.q_proj": (layer.attn.qkv, slice(0, a.n_heads * a.head_dim))}
        blocks["self_attn.k_proj"] = (
            layer.attn.qkv,
            slice(a.n_heads * a.head_dim, (a.n_heads + a.n_kv_heads) * a.head_dim),
        )
        blocks["self_attn.v_proj"] = layer.attn.qkv, slice((a.n_heads + a.n_kv_heads) * a.head_dim, None)
        blocks |= {
            "mlp.gate_proj": (layer.mlp.gate_up, slice(0, 48)),
            "mlp.up_proj": (layer.mlp.gate_up, slice(48, None)),
        }
        whole = {
            "self_attn.o_proj": layer.attn.o, "mlp.down_proj": layer.mlp.down, "self_attn.q_norm": layer.attn.q_norm,
            "self_attn.k_norm": layer.attn.k_norm, norms[0]: layer.attn_norm, norms[1]: layer.mlp_norm,
        }  # fmt: skip
        blocks |= {name: (module, slice(None)) for name, module in whole.items() if module is not None}
        found |= {f"model.layers.{i}.{name}.weight": (module.weight, rows) for name, (module, rows) in blocks.items()}
    for name, module in (("model.embed_tokens", model.embed), ("model.norm", model.norm), ("lm_head", model.head)):
        found[f"{name}.weight"] = module.weight, slice(None)
    return {name: (p if p.grad is None else p.grad)[rows] for name, (p, rows) in found.items()}


def test_the_table_knows_where_norms_stand():
    for overrides, placement in ((OLMO2, "branch"), (QWEN3, "pre")):
        facts = parameter_facts(make(*overrides))
        assert {fact.placement for fact in facts if fact.layer is not None} == {placement}
        assert {fact.role for fact in facts if "norm" in fact.name} == {"norm"}


def test_placement_and_scaling_change_no_draw():
    """Every matrix is drawn as in the plain decoder, and the receipt has one line for each: names and facts decide."""
    drawn = []
    for overrides in ([], ["model.norm_placement=post", *LLAMA3, "model.attention.qk_norm=whole"]):
        model = Decoder(Config.load(None, [*OURS, *overrides]).model)
        receipt = initialize_(model, "gpt2", seed=3)
        drawn.append({name: tensor for name, tensor in model.state_dict().items() if "norm" not in name})
        assert {row.parameter for row in receipt.plan.rows} == set(model.state_dict())
        assert all(bool((p == 1).all()) for name, p in model.named_parameters() if "norm" in name)
    assert drawn[0].keys() == drawn[1].keys()
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])


def ids(rows: int, length: int) -> Tensor:
    return torch.randint(64, (rows, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_transformers(family):
    overrides, options = FAMILIES[family]
    ours = make(*overrides)
    theirs = getattr(transformers, f"{family}ForCausalLM")(
        getattr(transformers, f"{family}Config")(**SIZES, **options, attn_implementation="eager")
    )
    theirs.load_state_dict(tensors(ours))
    text = ids(2, 40)
    logits, expected = ours(text), theirs(text).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    for each in (logits, expected):
        F.cross_entropy(each[:, :-1].flatten(0, 1), text[:, 1:].flatten()).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, gradient in tensors(ours).items():
        torch.testing.assert_close(gradient, gradients[name], rtol=1e-4, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
        assert gradient.abs().max() > 1e-5, name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_continues_every_family(family):
    model, text = make(*FAMILIES[family][0]).double(), ids(2, 20)
    cache = KVCache(model.config, 2, 24, dtype=torch.float64)
    pieces = [model(text[:, a:b], cache=cache) for a, b in ((0, 9), (9, 10), (10, 20))]
    torch.testing.assert_close(torch.cat(pieces, 1), model(text), rtol=1e-9, atol=1e-11)


def test_what_is_added_behind_a_norm_has_the_size_of_its_gain_whatever_the_matrices():
    model = make(*OLMO2, "model.norm_eps=1e-24").double()
    layer: Any = model.layers[0]
    x, rotation, _ = model.embedded(ids(1, 8))
    with torch.no_grad():
        nn.init.ones_(layer.attn_norm.weight)
        nn.init.ones_(layer.mlp_norm.weight)
        before = layer.attention_of(x, rotation), layer.mlp_of(x)
        layer.attn.o.weight *= 1e-3
        layer.mlp.down.weight *= 1e3
        after = layer.attention_of(x, rotation), layer.mlp_of(x)
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(new.square().mean(-1), torch.ones(1, 8, dtype=torch.float64), rtol=1e-4, atol=0)


def test_a_whole_norm_is_of_all_heads_and_a_head_norm_of_each():
    x = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rotation = rotations(torch.arange(6)[None], 8, 1e4)
    changes = {}
    for kind in ("whole", "head"):
        attention: Any = make(f"model.attention.qk_norm={kind}", "model.norm_eps=1e-12").double().layers[0].attn
        assert attention.q_norm.weight.shape == ((32,) if kind == "whole" else (8,))
        assert attention.k_norm.weight.shape == ((16,) if kind == "whole" else (8,))
        with torch.no_grad():
            before = attention(x, rotation, None, None)
            attention.qkv.weight[:48] *= 100  # all queries and keys alike: neither norm sees it
            torch.testing.assert_close(attention(x, rotation, None, None), before)
            attention.qkv.weight[:8] *= 10  # one head's queries: its own norm takes it out again
            changes[kind] = float((attention(x, rotation, None, None) - before).abs().max())
    assert changes["head"] < 1e-8 < 1e-4 < changes["whole"]


@given(
    st.sampled_from([16, 64, 96, 128]),
    st.sampled_from([1e4, 5e5, 1e6]),
    st.floats(1, 64),
    st.floats(0.25, 2),
    st.floats(2.5, 16),
    st.sampled_from([64, 1000, 8192]),
)
def test_scaled_angles_are_those_of_transformers_to_the_bit(width, theta, factor, low, high, length):
    scaling = RopeScaling(factor=factor, original_max_seq_len=length, low_freq_factor=low, high_freq_factor=high)
    told = ROPE | {"rope_theta": theta, "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    told["original_max_position_embeddings"] = length
    config = transformers.LlamaConfig(hidden_size=width, num_attention_heads=1, head_dim=width, rope_parameters=told)
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
    positions = torch.tensor([[0, 1, 63, 4097, 120_000]])
    cos, sin = rotations(positions, width, theta, scaling)
    angles = positions[..., None].float() * theirs
    assert torch.equal(cos[..., 0, :], angles.cos())
    assert torch.equal(sin[..., 0, :], angles.sin())


def test_scaling_leaves_fast_rotations_and_divides_slow_ones():
    scaling = RopeScaling(factor=8, original_max_seq_len=8192)  # the numbers of Llama 3.1
    at_one = torch.tensor([[1]])
    plain, scaled = rotations(at_one, 128, 5e5), rotations(at_one, 128, 5e5, scaling)
    angles, stretched = (torch.atan2(sin, cos).flatten() for cos, sin in (plain, scaled))
    turns = 8192 * angles / (2 * torch.pi)  # in the original length
    assert torch.equal(stretched[turns > 4.01], angles[turns > 4.01])
    torch.testing.assert_close(stretched[turns < 0.99], angles[turns < 0.99] / 8)
    between = (turns > 1.01) & (turns < 3.99)
    assert between.sum() == 6
    assert bool(((stretched < angles) & (stretched > angles / 8))[between].all())
