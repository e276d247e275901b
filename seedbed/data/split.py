"""Windows over one stream of a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from seedbed.data.document import Encoded
from seedbed.data.layout import AGAIN, BIN, SEGMENT, read_array
from seedbed.data.readers import Tokens
from seedbed.errors import InputError

IGNORED = -100
"""Target of a position that predicts nothing (the value torch's cross-entropy ignores)."""


class Batch(NamedTuple):
    """Windows as the model and the loss read them."""

    ids: torch.Tensor  # [B, T] int64
    targets: torch.Tensor  # [B, T] int64, IGNORED where nothing is predicted
    doc_ids: torch.Tensor  # [B, T] int64, from 0 within a row, -1 for padding
    positions: torch.Tensor  # [B, T] int64, what the model counts positions by


class Shard:
    """One folder of a stream: where its bins and segments lie, and its tokens."""

    def __init__(self, folder: Path, tokens: Tokens):
        self.folder = folder
        self.bins = read_array(folder / "bins.bin", BIN)  # [bins + 1]
        self.segments = read_array(folder / "segments.bin", SEGMENT)
        self.tokens = tokens

    def counts(self) -> tuple[int, int, int]:
        """Bins, segments and tokens, by the index."""
        return len(self.bins) - 1, len(self.segments), int(self.bins["token"][-1])


class Split:
    """Bins of up to ``seq_len`` tokens, as they were packed.

    A bin is a run of segments, each a run of one document's tokens; what no token fills is padding, which is no
    document and predicts nothing. The target of a token is the next one of its document, also where that stands in
    another bin, unless it is masked or was cut off. So each token is predicted once at most, a document's first never.
    """

    def __init__(
        self,
        name: str,
        seq_len: int,
        pad_id: int,
        vocab_size: int,
        position_ids: str,
        fingerprint: str,
        token_fingerprint: str,
        shards: Sequence[Shard],
    ):
        self.name = name
        self.seq_len = seq_len
        self.fingerprint = fingerprint
        """Hash of all that decides what is in a batch: tokens, masks, bins, positions."""
        self.token_fingerprint = token_fingerprint
        """The fingerprint that format 1 gave the same batches, as the positions of its runs hold it."""
        self._pad_id = pad_id
        self._vocab_size = vocab_size
        self._position_ids = position_ids
        self._shards = shards
        self._ends = np.cumsum([len(shard.bins) - 1 for shard in shards], dtype=np.int64)  # [shards]

    def __len__(self) -> int:
        """Number of bins."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def windows(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The bins with these numbers, one a row, in this order. Raises IndexError for a number out of range."""
        shape = (len(indices), self.seq_len)
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        targets = np.full(shape, IGNORED, dtype=np.int64)
        doc_ids = np.full(shape, -1, dtype=np.int64)
        positions = np.tile(np.arange(self.seq_len), (len(indices), 1))
        for row, index in enumerate(indices):
            self._fill(int(index), ids[row], targets[row], doc_ids[row], positions[row])
        return Batch(*map(torch.from_numpy, (ids, targets, doc_ids, positions)))

    def segments(self, index: int) -> tuple[np.ndarray, int]:
        """The segments of a bin (SEGMENT records), and how many tokens it has."""
        shard, begin, end = self._bin(index)
        return shard.segments[begin["segment"] : end["segment"]], int(end["token"] - begin["token"])

    def tokens(self, index: int) -> Encoded:
        """The tokens of a bin without padding, and which of them are trained.

        Raises InputError, naming the shard, where they are damaged: too few, too many, or outside the vocabulary.
        """
        shard, begin, end = self._bin(index)
        found = shard.tokens.read(int(begin["token"]), int(end["token"]))
        if len(found.ids) != end["token"] - begin["token"]:
            problem = f"{len(found.ids)} tokens in a bin of {end['token'] - begin['token']}"
        elif (largest := int(found.ids.max())) >= self._vocab_size:
            problem = f"holds {largest}, where every id is below {self._vocab_size}"
        else:
            return found
        raise InputError(f"{shard.folder}: damaged: {problem}; {AGAIN}")

    def _bin(self, index: int) -> tuple[Shard, np.void, np.void]:
        """The shard of a bin, the bin's record and the one behind it."""
        if not 0 <= index < len(self):
            raise IndexError(f"bin {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        shard = self._shards[number]
        local = index - int(self._ends[number]) + len(shard.bins) - 1
        return shard, shard.bins[local], shard.bins[local + 1]

    def _fill(
        self, index: int, ids: np.ndarray, targets: np.ndarray, doc_ids: np.ndarray, positions: np.ndarray
    ) -> None:
        """Write one bin into four rows of length T."""
        shard, begin, end = self._bin(index)
        tokens, trained = self.tokens(index)
        segments, real = shard.segments[begin["segment"] : end["segment"]], len(tokens)
        starts = segments["offset"].astype(np.int64)
        lengths = np.diff(starts, append=real)
        ids[:real] = tokens
        targets[: real - 1] = tokens[1:]
        if trained is not None:
            targets[: real - 1][~trained[1:]] = IGNORED
        targets[starts + lengths - 1] = np.where(segments["next"] < 0, IGNORED, segments["next"])
        doc_ids[:real] = np.repeat(np.arange(len(starts)), lengths)
        if self._position_ids != "none":
            base = -starts if self._position_ids == "doc_reset" else segments["position"].astype(np.int64) - starts
            positions[:real] += np.repeat(base, lengths)
            positions[real:] -= real
