"""The order in which training reads a split."""

from typing import Any

import numpy as np

from seedbed.data.split import Batch, Split
from seedbed.errors import InputError


def permutation(length: int, seed: int, epoch: int) -> np.ndarray:
    """Order of one epoch: [length] int64, a function of its arguments alone.

    Sorts the raw output of a Philox generator keyed by (seed, epoch): numpy keeps raw streams the same between
    releases, which it does not promise for `Generator.permutation`.
    """
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(length)
    return np.argsort(keys, kind="stable")


class Loader:
    """Shuffled batches without end.

    Samples are counted from the start of training: sample k is number k mod N of the permutation of epoch k div N,
    N bins in the split. A batch is the next ``batch_size`` samples and runs on across the end of an epoch, so that no
    batch is partial and every epoch reads every bin once. The order does not depend on batch size, micro-batches or
    restarts. One permutation (8 bytes a bin) is kept.
    """

    def __init__(self, split: Split, batch_size: int, seed: int, position: int = 0):
        if len(split) == 0:
            raise InputError(f"the split {split.name!r} of the store is empty; prepare data with documents in it")
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size}: must be at least 1")
        self.batch_size = batch_size
        self.position = position
        """Samples given out so far."""
        self._split = split
        self._seed = seed
        self._cached: tuple[int, np.ndarray] | None = None  # (epoch, its permutation)

    @property
    def epoch(self) -> int:
        """Epoch of the next sample, from 0."""
        return self.position // len(self._split)

    def next_indices(self) -> np.ndarray:
        """Bin numbers of the next batch, [batch_size] int64; moves the position on."""
        pieces = []
        missing = self.batch_size
        while missing:
            offset = self.position % len(self._split)
            piece = self._order(self.epoch)[offset : offset + missing]
            pieces.append(piece)
            self.position += len(piece)
            missing -= len(piece)
        return np.concatenate(pieces)

    def next_batch(self) -> Batch:
        """The next ``batch_size`` windows."""
        return self._split.windows(self.next_indices())

    def state(self) -> dict[str, Any]:
        """Where the loader stands, as JSON values."""
        return {"position": self.position, **self._identity()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``. Another batch size is fine; other data or another seed raises InputError."""
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise InputError(f"data position: {key} is {value!r}, but was {state.get(key)!r} when it was saved")
        self.position = state["position"]

    def _identity(self) -> dict[str, Any]:
        split = self._split
        return {"split": split.name, "bins": len(split), "data": split.fingerprint, "seed": self._seed}

    def _order(self, epoch: int) -> np.ndarray:
        if self._cached is None or self._cached[0] != epoch:
            self._cached = epoch, permutation(len(self._split), self._seed, epoch)
        return self._cached[1]
