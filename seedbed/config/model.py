"""The section of the decoder."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

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
    qk_norm: bool = False
    """RMSNorm of queries and keys, per head, before the rotation: scores stay bounded however large they grow, against
    spikes of the loss (Dehghani et al. 2023; S3)."""
    scale: Multiplier | None = None
    """Factor of the scores q·k. Default: head_dim^-1/2; with init.law=mup 8/head_dim, the same at head_dim 64."""


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
    """Norm in front of each branch and of the head."""
    norm_eps: Epsilon = 1e-12
    """Added to the mean square in every norm; 1e-5 hides a small initialization (S0 section 2.1)."""
    position: Literal["rope", "learned"] = "rope"
    """rope: rotary angles, made in fp32. learned: a table added to the embedding."""
    rope_theta: Annotated[float, Field(gt=0, le=1e30)] = 10_000.0
    """Base of the rotary angles."""
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
        if self.position == "rope" and head_dim % 2:
            raise ValueError(f"rope needs an even attention.head_dim, not {head_dim}")
        d_ff = ffn.d_ff or (4 * self.d_model if ffn.kind == "gelu" else -(-8 * self.d_model // (3 * 64)) * 64)
        # frozen sections: the resolved values are put in place once, here
        resolved = {"n_kv_heads": n_kv, "head_dim": head_dim}
        object.__setattr__(self, "attention", attention.model_copy(update=resolved))
        object.__setattr__(self, "ffn", ffn.model_copy(update={"d_ff": d_ff}))
        return self
