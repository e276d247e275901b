"""A Seedbed model for Transformers.

The layers are those that it was trained with. Attention goes through Transformers' attention interface and its caches,
so `generate`, continuous batching and engines that plug into that interface work.
Shapes: B batch, T tokens, D model width, V vocabulary, H heads, K head width.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from seedbed.hub.shipped.configuration_seedbed import SeedbedConfig
from seedbed.model.decoder import Block
from seedbed.model.norm import Embedding, Linear, make_norm
from seedbed.model.rope import rotations


@dataclass
class Seen:
    """What the attention of one layer is told beside queries, keys and values, and what it tells of itself."""

    layer: Any
    mask: Any  # as the attention implementation has it; None where it needs none
    told: dict[str, Any]  # what came from above for it
    weights: Tensor | None = None  # [B, H, Tq, Tk], from implementations that have them


@dataclass
class LayerSlot:
    """The place of one layer in a cache of Transformers."""

    cache: Cache
    index: int
    told: dict[str, Any]  # a paged cache writes into it what attention needs

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.update(k, v, self.index, kwargs=self.told)  # pyright: ignore


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Seen) -> Tensor:
    """Attention by the implementation that the model is set to. q [B, H, Tq, K] -> [B, H, Tq, K]."""
    interface = ALL_ATTENTION_FUNCTIONS.get_interface(seen.layer.config._attn_implementation, eager_attention_forward)
    scaling = seen.layer.head_dim**-0.5
    out, seen.weights = interface(seen.layer, q, k, v, seen.mask, dropout=0.0, scaling=scaling, **seen.told)
    batch, heads, length, _ = q.shape
    return out.reshape(batch, length, heads, -1).transpose(1, 2)


class SeedbedLayer(GradientCheckpointingLayer, Block):
    """A block whose attention knows what the implementations ask a layer for."""

    def __init__(self, config: SeedbedConfig, index: int):
        super().__init__(config.parts, attend)  # pyright: ignore
        self.attn.config = config  # pyright: ignore
        self.attn.layer_idx = index  # pyright: ignore
        self.attn.is_causal = True  # pyright: ignore
        self.attn.num_key_value_groups = self.attn.n_heads // self.attn.n_kv_heads  # pyright: ignore


class SeedbedPreTrainedModel(PreTrainedModel):
    config_class = SeedbedConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["SeedbedLayer"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": SeedbedLayer}  # noqa: RUF012


class SeedbedModel(SeedbedPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config: SeedbedConfig):
        super().__init__(config)
        self.parts = parts = config.parts
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        learned = parts.position == "learned"
        self.embed_positions = Embedding(config.max_position_embeddings, config.hidden_size) if learned else None
        self.layers = nn.ModuleList(SeedbedLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = make_norm(parts.norm, config.hidden_size, parts.norm_eps, parts.bias)
        self.gradient_checkpointing = False
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """States [B, T, D] that the head reads: normed, and times the output multiplier where there is one."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        x: Tensor = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # [B, T, D]
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            start = cache.get_seq_length() if cache is not None else 0
            position_ids = torch.arange(start, start + x.shape[1], device=x.device)[None]  # [1, T]
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            cache=cache,
            position_ids=position_ids,
        )
        parts, rotation = self.parts, None
        if self.embed_positions is not None:
            x = x + self.embed_positions(position_ids)
        else:
            rotation = rotations(position_ids, parts.attention.head_dim, parts.rope_theta, parts.rope_scaling)
        weights = []
        for index, layer in enumerate(self.layers):
            told = {"position_ids": position_ids, **kwargs}
            seen = Seen(layer.attn, mask, told)  # pyright: ignore
            x = layer(x, rotation, seen, cache=None if cache is None else LayerSlot(cache, index, told))
            weights.append(seen.weights)
        x = self.norm(x)
        if parts.output_multiplier is not None:
            x = x * parts.output_multiplier
        wanted = kwargs.get("output_attentions", self.config.output_attentions)
        return BaseModelOutputWithPast(last_hidden_state=x, cache=cache, attentions=tuple(weights) if wanted else None)


class SeedbedForCausalLM(SeedbedPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: SeedbedConfig):
        super().__init__(config)
        self.model = SeedbedModel(config)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B, T, V], of the last ``logits_to_keep`` places or those named; with ``labels`` [B, T] the loss."""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
