"""The ranks of a run: which one this process is, what all of them count together, what one of them does for all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from seedbed.errors import InputError, Stop

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""How long ranks wait while one works alone: on a large model a snapshot or a page takes long."""


@dataclass(frozen=True)
class World:
    """The ranks of a run, one by default. What all call together is called in the same order on each of them."""

    device: torch.device
    """Where this rank computes."""
    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    """All ranks, where there are several."""
    control: dist.ProcessGroup | None = None
    """A group for words instead of tensors, with all patience."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes what a run has once: metrics, receipt, report."""
        return self.rank == 0

    @property
    def group(self) -> dist.ProcessGroup | None:
        """All ranks, as a process group."""
        return None if self.mesh is None else self.mesh.get_group()

    def sum(self, *values: float) -> list[float]:
        """The sums over all ranks, in fp64: exact for counts up to 2^53."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def max(self, value: int) -> int:
        """The largest over all ranks."""
        if self.size == 1:
            return value
        largest = torch.tensor(value, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def together(self, work: Callable[[], T]) -> T:
        """``work()`` of this rank. Where it fails on some ranks, all raise the error of the first of these.

        So none waits for one that has gone, and a message is shown once.
        """
        if self.size == 1:
            return work()
        result, error = None, None
        try:
            result = work()
        except Exception as caught:
            error = caught
        errors: list[Exception | None] = [None] * self.size
        dist.all_gather_object(errors, error, group=self.control)
        first = next((one for one in errors if one is not None), None)
        if first is None:
            return result  # pyright: ignore[reportReturnType]
        if isinstance(first, Stop):
            first.everywhere = True
        raise first

    def by_lead(self, work: Callable[[], T]) -> T:
        """What ``work()`` gives the leading rank, on all of them; so is its error."""
        result = self.together(lambda: work() if self.leads else None)
        if self.size > 1:
            box = [result]
            dist.broadcast_object_list(box, src=0, group=self.control)
            result = box[0]
        return result  # pyright: ignore[reportReturnType]


def pick_device(name: str) -> torch.device:
    """``auto`` takes CUDA where it is; ``cpu`` never asks. Of several devices a rank takes that of its local number."""
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if name == "cuda":
        raise InputError("train.device=cuda: no CUDA device can be used here; set train.device=cpu")
    return torch.device("cpu")


@contextmanager
def open_world(device: str, timeout_s: float) -> Iterator[World]:
    """The ranks that torchrun started, as its environment tells; this process alone where it did not.

    ``timeout_s`` is how long a rank waits for the others within a step. Raises InputError as pick_device does.
    """
    chosen = pick_device(device)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    try:
        control = dist.new_group(backend="gloo", timeout=PATIENCE)
        assert isinstance(control, dist.ProcessGroup)
        mesh = init_device_mesh(chosen.type, (size,))
        yield World(chosen, dist.get_rank(), size, mesh, control)
    finally:
        dist.destroy_process_group()
