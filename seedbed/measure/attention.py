"""What attention weights say, summed over queries block by block: their whole T x T matrix is never there.

Shapes: B rows, H heads, T tokens, Q queries of a block, S keys up to the last of them, P places.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from seedbed.model.attention import document_starts

BLOCK = 2**20
"""Weights held at once, at most (4 MB in fp32: they stay in a core's cache), but those of one query of each row."""
PLACES = 16
"""First tokens of a document whose weights are kept apart."""

Weigh = Callable[[slice], tuple[Tensor, Tensor]]
"""Queries [Q] of all rows to their attention weights on the keys up to the last query, [B, H, Q, S], and which keys
they may see, bool [B or 1, 1, Q, S]."""


class NotExplainedError(RuntimeError):
    """The attention weights of a layer cannot be had, do not explain its output, or go where they may not."""


@dataclass(frozen=True)
class AttentionSums:
    """Sums over the queries of each row, fp64. Queries are the second to last tokens of each document (choice: the
    first token attends to itself alone, its weight is always 1).
    """

    queries: Tensor  # [B] how many
    sink: Tensor  # [B, H] weight on the first token of the document
    entropy: Tensor  # [B, H] nats, of the weights on tokens, scaled to 1
    elsewhere: Tensor  # [B, H] weight on no token: a learned sink's
    uniform_sink: Tensor  # [B] what even attention to all visible tokens would give
    uniform_entropy: Tensor  # [B]
    late: Tensor  # [B] queries that have PLACES tokens before them
    places: Tensor  # [B, H, P] their weight on each of the first tokens
    uniform_places: Tensor  # [B, P]


def first_positions(doc_ids: Tensor) -> tuple[Tensor, Tensor]:
    """For doc_ids [B, T]: the position of each token's document start [B, T], and which tokens are queries [B, T].

    A document is a run of equal ids. Raises ValueError when no document has a second token.
    """
    first = document_starts(doc_ids)
    index = torch.arange(doc_ids.shape[1], device=doc_ids.device)  # [T]
    queries = (index > first) & (doc_ids >= 0)
    if not queries.any():
        raise ValueError("sink score without a query: no document has a second token")
    return first, queries


def attention_sums(weigh: Weigh, doc_ids: Tensor, heads: int) -> AttentionSums:
    """The sums of a layer with so many heads, over doc_ids [B, T]; memory is linear in T.

    Raises ValueError without a query, NotExplainedError where a query sees a token outside its document.
    """
    first, queries = first_positions(doc_ids)
    length = doc_ids.shape[1]
    size = max(1, BLOCK // (len(doc_ids) * heads * length))
    blocks = [slice(start, min(start + size, length)) for start in range(0, length, size)]
    parts = [_block_sums(*weigh(rows), rows, first, queries) for rows in blocks]
    return AttentionSums(
        **{field.name: torch.stack([getattr(part, field.name) for part in parts]).sum(0) for field in fields(parts[0])}
    )


def _block_sums(weights: Tensor, visible: Tensor, rows: slice, first: Tensor, queries: Tensor) -> AttentionSums:
    """The sums over one block; ``first`` and ``queries`` [B, T] are those of `first_positions`."""
    batch, heads, _, stop = weights.shape
    starts = first[:, :stop]
    first, asked = first[:, rows], queries[:, rows]  # [B, Q]
    visible = visible.expand(batch, 1, -1, stop)[:, 0]  # [B, Q, S]
    outside = visible & (first[..., None] != starts[:, None])
    if (outside.any(-1) & asked).any():
        raise NotExplainedError("attention sees tokens outside the query's document")
    places = torch.arange(PLACES, device=first.device)
    index = torch.arange(rows.start, rows.stop, device=first.device)  # [Q]
    late = asked & (index - first >= PLACES)
    at = (first[..., None] + places).clamp(max=stop - 1)  # [B, Q, P]
    on_first = weights.gather(-1, at[:, None].expand(-1, heads, -1, -1)).double()  # [B, H, Q, P]
    seen = visible.sum(-1).double()  # [B, Q]
    even = visible.gather(-1, at) / seen[..., None]  # [B, Q, P]
    total = weights.sum(-1, dtype=torch.float64)  # [B, H, Q]
    entropy = torch.special.entr(weights).sum(-1, dtype=torch.float64) / total + total.log()

    def over(values: Tensor, chosen: Tensor) -> Tensor:
        """Sum over the chosen queries [B, Q] of values [B, Q] or [B, H, Q]."""
        return values.where(chosen if values.ndim == 2 else chosen[:, None], 0).sum(-1)

    return AttentionSums(
        queries=asked.sum(-1),
        sink=over(on_first[..., 0], asked),
        entropy=over(entropy, asked),
        elsewhere=over(1 - total, asked),
        uniform_sink=over(even[..., 0], asked),
        uniform_entropy=over(seen.log(), asked),
        late=late.sum(-1),
        places=on_first.where(late[:, None, :, None], 0).sum(2),
        uniform_places=even.where(late[..., None], 0).sum(1),
    )
