"""Packed or padded rows taken apart: each document a row of its own, from the first place on.

Shapes: B rows, T tokens.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seedbed.model.attention import document_starts


class Rows(NamedTuple):
    """Documents of like length, one a row, padding behind them."""

    ids: Tensor  # [D, L] int64, 0 for padding
    row: Tensor  # [D, L] int64, where each token stood; -1 for padding
    place: Tensor  # [D, L] int64, likewise


def one_document_first(doc_ids: Tensor) -> bool:
    """Whether each row of doc_ids [B, T] is one document with nothing but padding behind it."""
    real = doc_ids >= 0
    one = (doc_ids == doc_ids[:, :1]) | ~real
    ordered = real[:, :-1] | ~real[:, 1:]  # never padding before a token
    return bool(one.all() and ordered.all() and real[:, 0].all())


def apart(ids: Tensor, doc_ids: Tensor) -> Iterator[Rows]:
    """The documents of ids [B, T], longest first, in as many batches as keep each within B x T tokens."""
    starts = document_starts(doc_ids)  # [B, T]
    index = torch.arange(ids.shape[1], device=ids.device)
    heads = ((index == starts) & (doc_ids >= 0)).nonzero()  # [D, 2]: row and place of each first token
    ends = torch.ones_like(doc_ids, dtype=torch.bool)
    ends[:, :-1] = doc_ids[:, 1:] != doc_ids[:, :-1]
    lengths = (ends & (doc_ids >= 0)).nonzero()[:, 1] - heads[:, 1] + 1  # [D]
    order = lengths.argsort(descending=True, stable=True)
    done = 0
    while done < len(order):
        longest = int(lengths[order[done]])
        chosen = order[done : done + max(1, ids.numel() // longest)]
        done += len(chosen)
        inside = torch.arange(longest, device=ids.device)
        real = inside < lengths[chosen, None]  # [D, L]
        row = heads[chosen, :1].expand(-1, longest)
        place = (heads[chosen, 1:] + inside).where(real, 0)
        yield Rows(ids[row, place].where(real, 0), row.where(real, -1), place.where(real, -1))
