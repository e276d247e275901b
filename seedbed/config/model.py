"""The section of the decoder."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from seedbed.config.section import Epsilon, Multiplier, Positive, Section


class AttentionConfig(Section):
    n_heads: Positive = 4
    """Query heads."""
    n_kv_heads: Positive | None = None
    """Heads of keys and values; fewer than n_heads is grouped-query attention. Default: n_heads."""
    head_dim: Positive | None = None
    """Width of a head. Default: d_model / n_heads."""
    gate: Literal["none", "elementwise", "headwise"] = "none"
    """Sigmoid gate on each head's output, computed from the layer's normed input (S0, S3 11.8.3.5)."""
    qk_norm: Literal["none", "head", "whole"] = "none"
    """RMSNorm of queries and keys before the rotation: scores stay bounded however large they grow, against spikes of
    the loss (Dehghani et al. 2023; S3). head: of each head by itself (Qwen3). whole: of all heads as one vector
    (OLMo 2). true and false are read as head and none."""
    scale: Multiplier | None = None
    """Factor of the scores q·k. Default: head_dim^-1/2; with init.law=mup 8/head_dim, the same at head_dim 64."""

    @field_validator("qk_norm", mode="before")
    @classmethod
    def _as_it_was(cls, value: Any) -> Any:
        """Configurations of before have a switch: RMSNorm of each head, or none."""
        return {True: "head", False: "none"}[value] if isinstance(value, bool) else value


class RopeScaling(Section):
    """Rotary angles of longer sequences than a model was first trained on, Llama 3's way (Llama Team 2024)."""

    factor: Annotated[float, Field(ge=1, le=1e9)]
    """What the slowest rotations are divided by."""
    original_max_seq_len: Positive
    """Longest sequence of the first training."""
    low_freq_factor: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Rotations with fewer turns than this in original_max_seq_len are divided by factor."""
    high_freq_factor: Annotated[float, Field(gt=0, le=1e9)] = 4.0
    """Rotations with more turns than this stay as they are; those between are interpolated."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor={self.low_freq_factor:g} is not below high_freq_factor={self.high_freq_factor:g}"
            )
        return self


class FfnConfig(Section):
    kind: Literal["swiglu", "gelu"] = "swiglu"
    """swiglu: down(silu(gate(x)) * up(x)), three matrices. gelu: down(gelu(up(x))), two."""
    d_ff: Positive | None = None
    """Hidden width. Default: 4*d_model for gelu; 8/3*d_model rounded up to a multiple of 64 for swiglu."""


class ModelConfig(Section):
    vocab_size: Positive | None = None
    """Rows of the embedding table. Default: the vocabulary of data.store."""
    d_model: Positive = 128
    """Width of the residual stream."""
    n_layers: Positive = 4
    """Blocks, each attention and a feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """Longest sequence; the size of the position table where positions are learned."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """Norm of each branch and of what the head reads."""
    norm_placement: Literal["pre", "post"] = "pre"
    """pre: x + branch(norm(x)). post: x + norm(branch(x)), with none in front of the branch (OLMo 2)."""
    norm_eps: Epsilon = 1e-12
    """Added to the mean square in every norm; 1e-5 hides a small initialization (S0 section 2.1)."""
    position: Literal["rope", "learned"] = "rope"
    """rope: rotary angles, made in fp32. learned: a table added to the embedding."""
    rope_theta: Annotated[float, Field(gt=0, le=1e30)] = 10_000.0
    """Base of the rotary angles."""
    rope_scaling: RopeScaling | None = None
    """Rotary angles for longer sequences than those of the first training, as Llama 3 has them. Default: none."""
    bias: bool = False
    """Biases on linear maps and shifts on norms."""
    tied: bool = False
    """Output head shares the embedding table."""
    output_multiplier: Multiplier | None = None
    """Factor of the logits. Default: 1; with init.law=mup base_width/d_model."""
    attention: AttentionConfig = AttentionConfig()
    """Heads, gate, QK-norm."""
    ffn: FfnConfig = FfnConfig()
    """The feed-forward network."""

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        attention, ffn = self.attention, self.ffn
        n_kv = attention.n_kv_heads or attention.n_heads
        if attention.n_heads % n_kv:
            raise ValueError(f"attention.n_kv_heads={n_kv} does not divide attention.n_heads={attention.n_heads}")
        head_dim = attention.head_dim
        if head_dim is None:
            if self.d_model % attention.n_heads:
                raise ValueError(
                    f"attention.n_heads={attention.n_heads} does not divide d_model={self.d_model}; "
                    "change one or set attention.head_dim"
                )
            head_dim = self.d_model // attention.n_heads
        if self.position == "learned" and self.rope_theta != ModelConfig.model_fields["rope_theta"].default:
            raise ValueError("rope_theta is not read with position=learned; leave it out")
        if self.position == "learned" and self.rope_scaling is not None:
            raise ValueError("rope_scaling is not read with position=learned; leave it out")
        if self.position == "rope" and head_dim % 2:
            raise ValueError(f"rope needs an even attention.head_dim, not {head_dim}")
        d_ff = ffn.d_ff or (4 * self.d_model if ffn.kind == "gelu" else -(-8 * self.d_model // (3 * 64)) * 64)
        # frozen sections: the resolved values are put in place once, here
        resolved = {"n_kv_heads": n_kv, "head_dim": head_dim}
        object.__setattr__(self, "attention", attention.model_copy(update=resolved))
        object.__setattr__(self, "ffn", ffn.model_copy(update={"d_ff": d_ff}))
        return self
