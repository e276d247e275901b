"""Texts as batches: which ones together, and as rows with padding."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor


class HasIds(Protocol):
    """What fills a row: tokens."""

    @property
    def ids(self) -> list[int]: ...


RowT = TypeVar("RowT", bound=HasIds)


class Padded(NamedTuple):
    """Texts as rows, padding behind them."""

    ids: Tensor  # [B, T] int64
    doc_ids: Tensor  # [B, T] int64, 0, and -1 for padding


def batches(texts: Iterable[RowT], tokens: int) -> Iterator[list[RowT]]:
    """Texts of like length together, longest first, so that rows x longest is at most ``tokens`` (one row at least)."""
    batch: list[RowT] = []
    for text in sorted(texts, key=lambda text: len(text.ids), reverse=True):
        if batch and (len(batch) + 1) * len(batch[0].ids) > tokens:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def padded(texts: Sequence[HasIds], pad_id: int) -> Padded:
    """One text a row, filled up to the longest."""
    longest = max(len(text.ids) for text in texts)
    ids = torch.full((len(texts), longest), pad_id, dtype=torch.int64)
    doc_ids = torch.full_like(ids, -1)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = torch.tensor(text.ids)
        doc_ids[row, : len(text.ids)] = 0
    return Padded(ids, doc_ids)
