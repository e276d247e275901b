"""The decoder-only transformer: GPT-2, Llama, Qwen3, OLMo 2, Mistral, S0's gated model are configurations of it.

It knows nothing of initialization, losses or sharding. Shapes: B batch, T tokens, D model width, V vocabulary.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seedbed.model.attention import Attend, Attention, Visible, attend, document_mask, document_starts, segments
from seedbed.model.norm import Embedding, FusedLinear, Linear, gelu, make_norm
from seedbed.model.passes import swiglu_gated
from seedbed.model.rope import rotations

if TYPE_CHECKING:
    from seedbed.config import ModelConfig
    from seedbed.model.cache import KVCache, LayerCache


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, d_model: int, d_ff: int, bias: bool):
        super().__init__()
        self.gate_up = FusedLinear(d_model, {"gate": d_ff, "up": d_ff}, bias=bias)
        self.down = Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(swiglu_gated(self.gate_up(x)))


class GeluMLP(nn.Module):
    """down(gelu(up(x)))."""

    def __init__(self, d_model: int, d_ff: int, bias: bool):
        super().__init__()
        self.up = Linear(d_model, d_ff, bias=bias)
        self.down = Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(gelu(self.up(x)))


class Block(nn.Module):
    """The stream plus what attention adds to it, plus what the feed-forward network adds to that."""

    def __init__(self, config: "ModelConfig", attend: Attend):
        super().__init__()
        assert config.ffn.d_ff
        # where its norms stand, as the parameter table calls it: on what a branch reads, or on what it adds
        self.placement = "pre" if config.norm_placement == "pre" else "branch"
        self.attn_norm = make_norm(config.norm, config.d_model, config.norm_eps, config.bias)
        self.attn = Attention(config, attend)
        self.mlp_norm = make_norm(config.norm, config.d_model, config.norm_eps, config.bias)
        ffn = SwiGLU if config.ffn.kind == "swiglu" else GeluMLP
        self.mlp = ffn(config.d_model, config.ffn.d_ff, config.bias)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor] | None, visible: Visible, cache: "LayerCache | None"
    ) -> Tensor:  # [B, T, D] -> [B, T, D]
        x = x + self.attention_of(x, rotation, visible, cache)
        return x + self.mlp_of(x)

    def attention_of(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor] | None,
        visible: Visible = None,
        cache: "LayerCache | None" = None,
    ) -> Tensor:
        """What attention adds to the stream x [B, T, D]."""
        if self.placement == "pre":
            return self.attn(self.attn_norm(x), rotation, visible, cache)
        return self.attn_norm(self.attn(x, rotation, visible, cache))

    def mlp_of(self, x: Tensor) -> Tensor:
        """What the feed-forward network adds to the stream x [B, T, D]."""
        return self.mlp(self.mlp_norm(x)) if self.placement == "pre" else self.mlp_norm(self.mlp(x))


class Decoder(nn.Module):
    """A decoder. Weights are NaN until an initialization or a checkpoint writes them."""

    def __init__(self, config: "ModelConfig", attend: Attend = attend):
        super().__init__()
        if config.vocab_size is None:
            raise ValueError("model.vocab_size is not set")
        self.config = config
        self.embed = Embedding(config.vocab_size, config.d_model)
        self.pos = Embedding(config.max_seq_len, config.d_model) if config.position == "learned" else None
        self.layers = nn.ModuleList(Block(config, attend) for _ in range(config.n_layers))
        self.norm = make_norm(config.norm, config.d_model, config.norm_eps, config.bias)
        self.head = None if config.tied else Linear(config.d_model, config.vocab_size, bias=False)
        self.output_multiplier = 1.0 if config.output_multiplier is None else config.output_multiplier
        # compiled blocks need shapes that no document decides: a mask on a CPU too
        self.same_shapes = False

    @property
    def head_weight(self) -> Tensor:
        """[V, D]: the head's own matrix, or the embedding table when tied."""
        return self.embed.weight if self.head is None else self.head.weight

    def forward(
        self,
        ids: Tensor,
        doc_ids: Tensor | None = None,
        cache: "KVCache | None" = None,
        hidden: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V] of ids [B, T] (int64); with ``hidden`` the states [B, T, D] that the head reads instead.

        Those are the normed last states times the output multiplier, so whatever reads them has its logits right.

        ``doc_ids`` [B, T] keep attention inside runs of equal id, whatever the positions. ``positions`` [B, T] (int64)
        are each token's place; without them they count from the first token, anew in each of those runs. Learned ones
        must lie in the table. With a ``cache``, ids are the next tokens only; what is padding in them, negative
        doc_ids on the left of each row, goes with the first ones, and the cache remembers it.
        """
        x, rotation, visible = self.embedded(ids, doc_ids, cache, positions)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotation, visible, cache.layers[index] if cache is not None else None)
        x = self.norm(x)
        if self.output_multiplier != 1:
            x = x * self.output_multiplier
        return x if hidden else F.linear(x, self.head_weight)

    def embedded(
        self,
        ids: Tensor,
        doc_ids: Tensor | None = None,
        cache: "KVCache | None" = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None, Visible]:
        """What the first block gets: the embedded input [B, T, D], rotations (none with learned positions), and what
        each token may see."""
        places, visible = self._places(ids, doc_ids, cache, positions)
        x = self.embed(ids)  # [B, T, D]
        if self.pos is not None:
            self._check_table(places)
            return x + self.pos(places), None, visible
        config = self.config
        assert config.attention.head_dim
        return x, rotations(places, config.attention.head_dim, config.rope_theta, config.rope_scaling), visible

    def _check_table(self, places: Tensor) -> None:
        """A clear error on a CPU. To look at a GPU's numbers would wait for it: there the lookup itself fails."""
        if not places.is_cpu or torch.compiler.is_compiling():
            return
        low, high = (int(x) for x in places.aminmax())
        if low < 0 or high >= self.config.max_seq_len:
            raise ValueError(f"positions {low} to {high} leave the table, model.max_seq_len={self.config.max_seq_len}")

    def _places(
        self, ids: Tensor, doc_ids: Tensor | None, cache: "KVCache | None", positions: Tensor | None
    ) -> tuple[Tensor, Visible]:  # positions [B|1, T]
        length, start = ids.shape[1], cache.length if cache is not None else 0
        if start + length > self.config.max_seq_len:
            raise ValueError(f"{start + length} tokens exceed model.max_seq_len={self.config.max_seq_len}")
        index = torch.arange(start, start + length, device=ids.device)[None]  # [1, T]
        if cache is not None and doc_ids is not None:
            cache.pad(doc_ids)
        if cache is not None and start:
            if positions is None:
                positions = index if cache.padding is None else index - cache.padding
            # these sit at the end of the keys: is_causal would align them with the beginning
            return positions, cache.visible(length)
        if doc_ids is None:
            return index if positions is None else positions, None
        if positions is None:
            positions = index - document_starts(doc_ids)  # [B, T]
        sliced = ids.device.type == "cpu" and not (self.same_shapes or torch.compiler.is_compiling())
        return positions, segments(doc_ids) if sliced else document_mask(doc_ids)
