"""Causal attention inside documents.

Shapes: B batch, T tokens, H query heads, G key/value heads, K head width, D model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seedbed.model.norm import FusedLinear, Linear, RMSNorm
from seedbed.model.rope import rotate

if TYPE_CHECKING:
    from seedbed.config import ModelConfig
    from seedbed.model.cache import LayerCache


@dataclass(frozen=True)
class Segment:
    """Tokens [start, stop) of ``rows``: one document each, so causal attention within is all there is."""

    rows: Tensor  # [n] indices into the batch
    start: int
    stop: int


Visible = list[Segment] | Tensor | None
"""What a query may see: None, every earlier token (a single query all keys); segments, earlier tokens of its document;
else bool [.., Tq, Tk]."""

Attend = Callable[[Tensor, Tensor, Tensor, Visible], Tensor]


def segments(doc_ids: Tensor) -> list[Segment] | None:
    """Spans of equal document id of doc_ids [B, T], rows with the same span together; None if rows are one document."""
    length = doc_ids.shape[1]
    spans: dict[tuple[int, int], list[int]] = {}
    for row, ids in enumerate(doc_ids.cpu()):
        edges = [0, *(torch.nonzero(ids[1:] != ids[:-1]).flatten() + 1).tolist(), length]
        for start, stop in pairwise(edges):
            spans.setdefault((start, stop), []).append(row)
    if list(spans) == [(0, length)]:
        return None
    return [Segment(torch.tensor(rows, device=doc_ids.device), *span) for span, rows in spans.items()]


def document_starts(doc_ids: Tensor) -> Tensor:
    """[B, T]: the position at which each token's run of equal id in doc_ids [B, T] begins."""
    begins = torch.ones_like(doc_ids, dtype=torch.bool)
    begins[:, 1:] = doc_ids[:, 1:] != doc_ids[:, :-1]
    index = torch.arange(doc_ids.shape[1], device=doc_ids.device)
    return (index * begins).cummax(dim=1).values


def document_mask(doc_ids: Tensor) -> Tensor:
    """Bool [B, 1, T, T]: query t sees key s when s <= t and both are of one run of equal id in doc_ids [B, T]."""
    starts = document_starts(doc_ids)
    same = starts[:, :, None] == starts[:, None, :]
    return same.tril()[:, None]


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> Tensor:
    """softmax(q kᵀ/√K) v over what is visible. q [B, H, Tq, K], k and v [B, G, Tk, K] -> [B, H, Tq, K].

    Per document slice on CPU, where a dense mask costs several times as much; by a dense mask elsewhere.
    """
    gqa = q.shape[1] != k.shape[1]
    if visible is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, enable_gqa=gqa)
    if isinstance(visible, Tensor):
        if gqa and q.is_cuda:  # a kernel that holds no scores takes grouped heads or a mask, not both
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            gqa = False
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=gqa)
    out = torch.empty_like(q)
    for part in visible:
        span = slice(part.start, part.stop)
        if len(part.rows) == q.shape[0]:  # every row: views instead of gathers
            q_, k_, v_ = (x[:, :, span] for x in (q, k, v))
        else:
            q_, k_, v_ = (x[:, :, span].index_select(0, part.rows) for x in (q, k, v))
        out[part.rows, :, span] = F.scaled_dot_product_attention(q_, k_, v_, is_causal=True, enable_gqa=gqa)
    return out


class Attention(nn.Module):
    """Multi-head or grouped-query attention with optional QK-norm and sigmoid gate (S0 section 4.6, S3 11.8.3.5)."""

    def __init__(self, config: "ModelConfig", attend: Attend):
        super().__init__()
        a = config.attention
        assert a.n_kv_heads
        assert a.head_dim  # resolved by the configuration
        self.n_heads, self.n_kv_heads, self.head_dim, self.attend = a.n_heads, a.n_kv_heads, a.head_dim, attend
        inner, kv = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim
        self.gate_width = {"none": 0, "elementwise": inner, "headwise": a.n_heads}[a.gate]
        blocks = {"q": inner, "k": kv, "v": kv, "gate": self.gate_width}
        self.qkv = FusedLinear(config.d_model, {k: rows for k, rows in blocks.items() if rows}, bias=config.bias)
        self.o = Linear(inner, config.d_model, bias=config.bias)
        self.q_norm = self.k_norm = None
        self.norms_heads = a.qk_norm == "head"  # each by itself, or all as one vector
        if a.qk_norm != "none":
            q_width, k_width = (a.head_dim, a.head_dim) if self.norms_heads else (inner, kv)
            self.q_norm, self.k_norm = RMSNorm(q_width, eps=config.norm_eps), RMSNorm(k_width, eps=config.norm_eps)
        # attend's own scale is K^-1/2; another one goes into the queries, where no path and no measure can miss it
        self.query_factor = 1.0 if a.scale is None else a.scale / a.head_dim**-0.5

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor] | None, visible: Visible, cache: "LayerCache | None"
    ) -> Tensor:  # [B, T, D] -> [B, T, D]
        batch, length, _ = x.shape
        fused = self.qkv(x)  # [B, T, (H + 2G) K + gate]
        n_q, n_kv = self.n_heads, self.n_kv_heads
        heads, gate = fused.split(((n_q + 2 * n_kv) * self.head_dim, self.gate_width), dim=-1)
        qk, v = heads.view(batch, length, -1, self.head_dim).split((n_q + n_kv, n_kv), dim=2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = qk.split((n_q, n_kv), dim=2)
            if self.norms_heads:
                qk = torch.cat((self.q_norm(q), self.k_norm(k)), dim=2)
            else:
                qk = torch.cat((self.q_norm(q.flatten(2)), self.k_norm(k.flatten(2))), dim=2)
                qk = qk.view(batch, length, -1, self.head_dim)
        if rotation is not None:
            qk = rotate(qk, *rotation)
        q, k, v = (y.transpose(1, 2) for y in (*qk.split((n_q, n_kv), dim=2), v))  # [B, heads, T, K]
        if self.query_factor != 1:
            q = q * self.query_factor
        if cache is not None:
            k, v = cache.extend(k, v)
        y = self.attend(q, k, v, visible).transpose(1, 2)  # [B, T, H, K]
        if self.gate_width:
            y = y * torch.sigmoid(gate).view(batch, length, n_q, -1)  # per feature, or one a head
        return self.o(y.reshape(batch, length, -1))
