"""Windows over one split of a store."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from seedbed.data.shards import ShardReader

IGNORED = -100
"""Target of a position that predicts nothing (the value torch's cross-entropy ignores)."""


class Batch(NamedTuple):
    """Windows as the model and the loss read them."""

    ids: torch.Tensor  # [B, T] int64
    targets: torch.Tensor  # [B, T] int64, IGNORED where nothing is predicted
    doc_ids: torch.Tensor  # [B, T] int64, from 0 within a row, -1 for padding
    positions: torch.Tensor  # [B, T] int64, of each token as the model is to see it


class Split:
    """Bins of ``seq_len`` tokens of one split's flat stream of documents, each stored as bos, text, eos.

    Packing "simple": bin i holds tokens [i*T, (i+1)*T) of the stream. Nothing is dropped: a document that does not
    end with its bin goes on in the next one, and the last bin is filled up with eos, which is no document and
    predicts nothing. The target of a token is the one after it in the stream, also across the end of a bin, where
    both belong to one document. So over all bins each token but the bos is predicted exactly once.
    """

    def __init__(self, name: str, seq_len: int, pad_id: int, fingerprint: str, tokens: ShardReader, starts: np.ndarray):
        self.name = name
        self.seq_len = seq_len
        self.fingerprint = fingerprint
        """Hash of the stream's content."""
        self._pad_id = pad_id
        self._tokens = tokens
        self._starts = starts  # [documents] first token of each document in the stream, ascending

    def __len__(self) -> int:
        """Number of bins."""
        return -(-len(self._tokens) // self.seq_len)

    def windows(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The bins with these numbers, one a row, in this order. Raises IndexError for a number out of range."""
        shape = (len(indices), self.seq_len)
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        targets = np.full(shape, IGNORED, dtype=np.int64)
        doc_ids = np.zeros(shape, dtype=np.int64)
        for row, index in enumerate(indices):
            if not 0 <= index < len(self):
                raise IndexError(f"bin {index} of {len(self)}")
            self._fill(int(index), ids[row], targets[row], doc_ids[row])
        return Batch(*(torch.from_numpy(x) for x in (ids, targets, doc_ids, _doc_reset(doc_ids))))

    def _fill(self, index: int, ids: np.ndarray, targets: np.ndarray, doc_ids: np.ndarray) -> None:
        """Write one bin into three rows of length T."""
        first = index * self.seq_len
        tokens = self._tokens.read(first, first + self.seq_len + 1)  # one more: the last target
        real = min(len(tokens), self.seq_len)
        ids[:real] = tokens[:real]
        targets[: len(tokens) - 1] = tokens[1:]
        low, high = np.searchsorted(self._starts, [first + 1, first + self.seq_len + 1])
        bounds = self._starts[low:high].astype(np.int64) - first  # document starts in 1..T
        targets[bounds - 1] = IGNORED
        doc_ids[bounds[bounds < self.seq_len]] = 1
        np.cumsum(doc_ids, out=doc_ids)
        doc_ids[real:] = -1  # padding


def _doc_reset(doc_ids: np.ndarray) -> np.ndarray:
    """Each token's place in its document's piece of the bin: [B, T] int64 of doc_ids [B, T]."""
    place = np.arange(doc_ids.shape[1])
    begins = np.ones_like(doc_ids, dtype=bool)
    begins[:, 1:] = doc_ids[:, 1:] != doc_ids[:, :-1]
    return place - np.maximum.accumulate(place * begins, axis=1)
