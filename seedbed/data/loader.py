"""Batches in the order of training, made ahead in a thread."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from seedbed.data.order import NEWEST, ORDERS
from seedbed.data.split import Batch, Split
from seedbed.errors import InputError


class Loader:
    """Shuffled batches without end.

    Samples are counted from the start of training: sample k is number k mod N in the order of epoch k div N, N bins in
    the split. A batch is the next ``batch_size`` samples and runs on across the end of an epoch, so that no batch is
    partial, nothing is dropped, and every epoch reads every bin once. Of W ranks each gets its W-th part of every
    batch, in order. So the order of samples does not depend on ranks, batch size, micro-batches or restarts.

    A thread makes ``prefetch`` batches ahead. The position is what was handed out, whatever was made; batches made for
    another position are dropped. With ``pin`` batches are made in pinned memory, which a GPU copies from beside its
    other work. Raises InputError on an empty split and on a batch that ranks cannot share evenly.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        seed: int,
        position: int = 0,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
        pin: bool = False,
    ):
        if len(split) == 0:
            raise InputError(f"the split {split.name!r} of the store is empty; prepare data with documents in it")
        if batch_size < 1 or batch_size % world_size:
            raise InputError(
                f"train.batch_size={batch_size}: must be a positive multiple of the number of ranks, {world_size}"
            )
        self.batch_size = batch_size
        """Samples of a batch, over all ranks."""
        self.position = position
        """Samples given out so far, over all ranks."""
        self._split = split
        self._seed = seed
        self._order = NEWEST
        self._rows = batch_size // world_size
        self._first_row = rank * self._rows
        self._prefetch = prefetch
        self._pin = pin
        self._ahead: deque[tuple[int, Future[Batch]]] = deque()  # batches and the positions they begin at, in order
        self._thread = ThreadPoolExecutor(1, "loader")  # starts with the first batch, ends with the loader

    @property
    def epoch(self) -> int:
        """Epoch of the next sample, from 0."""
        return self.position // len(self._split)

    def next_batch(self) -> Batch:
        """This rank's windows of the next batch. An error in making it is raised here; the position then stays."""
        if self._prefetch == 0:
            batch = self._make(self.position)
        else:
            if self._ahead and self._ahead[0][0] != self.position:
                self._drop()
            while len(self._ahead) <= self._prefetch:  # this one, and those ahead of it
                begin = self.position + len(self._ahead) * self.batch_size
                self._ahead.append((begin, self._thread.submit(self._make, begin)))
            batch = self._ahead.popleft()[1].result()
        self.position += self.batch_size
        return batch

    def state(self) -> dict[str, Any]:
        """Where the loader stands, as JSON values; the same on every rank."""
        return {"position": self.position, "order": self._order, **self._identity()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, in the order that it was saved in; batch size and ranks may be others.

        Raises InputError for other data, another seed, or an order that this release does not know.
        """
        identity = self._identity()
        if "order" not in state:  # saved on a store of format 1
            identity["data"] = self._split.token_fingerprint
        for key, value in identity.items():
            if state.get(key) != value:
                raise InputError(f"data position: {key} is {value!r}, but was {state.get(key)!r} when it was saved")
        order = state.get("order", 1)
        if order not in ORDERS:
            raise InputError(f"data position: order {order!r}, this release knows up to {NEWEST}; use the one it is of")
        self._drop()
        self._order, self.position = order, state["position"]

    def _identity(self) -> dict[str, Any]:
        split = self._split
        return {"split": split.name, "bins": len(split), "data": split.fingerprint, "seed": self._seed}

    def _drop(self) -> None:
        for _, batch in self._ahead:
            batch.cancel()
        self._ahead.clear()

    def _make(self, begin: int) -> Batch:
        """This rank's windows of the batch that begins at sample ``begin``."""
        samples = begin + self._first_row + np.arange(self._rows)
        epochs, places = np.divmod(samples, len(self._split))
        bins = np.empty_like(samples)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            of = epochs == epoch
            bins[of] = ORDERS[self._order](places[of], len(self._split), self._seed, epoch)
        batch = self._split.windows(bins)
        return Batch(*(tensor.pin_memory() for tensor in batch)) if self._pin else batch
