"""The ranks of a run: which one this process is, what all of them count together, what one of them does for all."""

import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from seedbed.errors import InputError, LostRank, Stop
from seedbed.parallel.launched import launched
from seedbed.parallel.meeting import meet

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""How long ranks wait while the leading one works alone: on a large model a snapshot takes long."""
SAVING = 10
"""So many times the patience of a step ranks have with each other while all read or write files (choice)."""


class Place(NamedTuple):
    """Where a rank is. All ranks pass the same places in the same order."""

    passed: int
    """How many it has been at."""
    step: int
    phase: str
    since: float
    """time.monotonic() of its coming there."""


@dataclass
class World:
    """The ranks of a run, one by default. What all call together is called in the same order on each of them."""

    device: torch.device
    """Where this rank computes."""
    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    """All ranks, where there are several."""
    control: dist.ProcessGroup | None = None
    """A group for words instead of tensors, with patience for files."""
    patient: dist.ProcessGroup | None = None
    """One to wait in for what the leading rank does alone."""
    starts: int = 0
    """How often torchrun has started these ranks before, by itself."""
    place: Place = field(default_factory=lambda: Place(0, 0, "start", time.monotonic()))
    """Where this rank is, for those who watch it."""

    def at(self, step: int, phase: str) -> None:
        """This rank begins ``phase`` of ``step``."""
        self.place = Place(self.place.passed + 1, step, phase, time.monotonic())

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
        total = torch.tensor(values, dtype=torch.float64)  # on the CPU: gloo does not wait for what a GPU has to do
        dist.all_reduce(total)
        return total.tolist()

    def max(self, value: int) -> int:
        """The largest over all ranks."""
        if self.size == 1:
            return value
        largest = torch.tensor(value)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def together(self, work: Callable[[], T]) -> T:
        """``work()`` of this rank. Where it fails on some ranks, all raise the error of the first of these.

        So none waits for one that has gone, and a message is shown once: by the rank that it came from. What ranks
        fail with because another one did not come is passed over where that one says why. Who is done with his work has
        come past a place; ``work`` talks with no other rank, or those that fail before let the others wait.
        """
        return self._together(work, self.control)

    def _together(self, work: Callable[[], T], group: dist.ProcessGroup | None) -> T:
        if self.size == 1:
            return work()
        result, error = None, None
        try:
            result = work()
        except Exception as caught:
            error = caught
        self.at(self.place.step, self.place.phase)
        errors = self._gather(error if _travels(error) else RuntimeError(f"{type(error).__name__}: {error}"), group)
        failed = [rank for rank, one in enumerate(errors) if one is not None]
        if not failed:
            return result  # pyright: ignore[reportReturnType]
        source = min(failed, key=lambda rank: (between_ranks(errors[rank]), rank))
        if source == self.rank:
            assert error is not None
            raise error
        errors[source].elsewhere = True
        raise errors[source]

    def by_lead(self, work: Callable[[], T]) -> T:
        """What ``work()`` gives the leading rank, on all of them; so is its error."""
        result = self._together(lambda: work() if self.leads else None, self.patient)
        if self.size > 1:
            box = [result]
            dist.broadcast_object_list(box, src=0, group=self.control)
            result = box[0]
        return result  # pyright: ignore[reportReturnType]

    def gather(self, value: Any) -> list[Any]:
        """``value`` of each rank, in their order."""
        return self._gather(value, self.control)

    def _gather(self, value: Any, group: dist.ProcessGroup | None) -> list[Any]:
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=group)
        return values

    def require_same(self, **values: Any) -> None:
        """Raise InputError where one of the named ``values`` is not the same on all ranks."""
        everyones = self.gather(values)
        for name in values:
            others = [str(rank) for rank, theirs in enumerate(everyones) if theirs[name] != everyones[0][name]]
            if others:
                error = InputError(
                    f"rank {', '.join(others[:8])}: another {name} than rank 0 has; let all ranks read the same files"
                )
                error.elsewhere = not self.leads
                raise error


def _travels(error: Exception | None) -> bool:
    """Whether another rank can read it: some errors of libraries are not made to be pickled."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def pick_device(name: str, option: str = "train.device=") -> torch.device:
    """``auto`` takes CUDA where it is; ``cpu`` never asks. Of several devices a rank takes that of its local number.

    Raises InputError, which names the ``option``, for ``cuda`` where none can be used.
    """
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if name == "cuda":
        raise InputError(f"{option}cuda: no CUDA device can be used here; use {option}cpu")
    return torch.device("cpu")


@contextmanager
def open_world(device: str, timeout_s: float) -> Iterator[World]:
    """The ranks that torchrun started, as its environment tells; this process alone where it did not.

    ``timeout_s`` is how long a rank waits for the others within a step, SAVING times that around files. Raises
    InputError as pick_device and launched do, and LostRank where the others do not come or have gone.
    """
    chosen = pick_device(device)
    if launched()[1] == 1:
        yield World(chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    with _met(chosen, timeout_s) as world:
        yield replace(world, mesh=init_device_mesh(chosen.type, (world.size,)))


@contextmanager
def _met(device: torch.device, timeout_s: float) -> Iterator[World]:
    """The ranks, once all have come, and their groups for words; not yet one for tensors."""
    rank, size = launched()
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        patience = timedelta(seconds=timeout_s)
        shared, _, _ = next(rendezvous("env://", timeout=patience))
        store, starts = meet(shared, rank, size, timeout_s)
        dist.init_process_group(backend, timeout=patience, store=store, rank=rank, world_size=size)
        yield World(device, rank, size, None, words_group(timeout_s), _words_group(PATIENCE), starts=starts)
    except RuntimeError as error:
        if not between_ranks(error):
            raise
        raise LostRank(f"a rank did not come, or has gone: {first_line(error)}; run the same command again") from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def words_group(timeout_s: float) -> dist.ProcessGroup:
    """All ranks, as a group of its own for words, where ``timeout_s`` is the patience of a step."""
    return _words_group(SAVING * timedelta(seconds=timeout_s))


def _words_group(patience: timedelta) -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=patience)
    assert isinstance(group, dist.ProcessGroup)
    return group


def fail_everywhere(error: Stop) -> NoReturn:
    """Raise ``error`` on all ranks: the others get it from the first that they do together once their world is open.

    What a device needs is left out here, since this rank does not know theirs.
    """

    def fail() -> NoReturn:
        raise error

    with _met(torch.device("cpu"), PATIENCE.total_seconds()) as world:
        world.together(fail)
    raise AssertionError("unreachable")


def between_ranks(error: BaseException) -> bool:
    """Whether ranks could not talk with each other. Gloo raises no type of its own: its source file is in the text."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo/" in str(error))


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
