"""Checkpoints beside training: the state is copied, and a thread writes the copy while the steps go on."""

import threading
import time
import warnings
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from seedbed.errors import GuardStop, SignalStop
from seedbed.parallel.world import World, words_group
from seedbed.train.metrics import Metrics
from seedbed.train.retention import prune
from seedbed.train.writing import Snapshot, check_finite, is_sharded, open_stager, snapshot, write

if TYPE_CHECKING:
    from seedbed.train.loop import Job

Written = tuple[int, float]
"""Bytes of tensors that were written, and time.perf_counter() when all was on the disk."""


@dataclass
class _Save:
    """A checkpoint on its way to the disk."""

    path: Path
    step: int
    began: float  # time.perf_counter()
    written: futures.Future[Written]
    thread: threading.Thread | None
    blocked: float = 0.0
    """Seconds for which training stood still."""

    def ended(self) -> Written:
        """What was written, once the thread is gone too: while the interpreter goes down, one that still drops its copy
        ends the process by SIGABRT.
        """
        if self.thread is not None:
            self.thread.join()
        return self.written.result()


class Saver:
    """Saves a job; under train.async_checkpoints in a thread, one save at a time, and the next one waits for it.

    Its methods are called on all ranks alike, and the end of its ``with`` block waits for the save on its way. An error
    of a thread is raised by the method that is called next, on all ranks, as if it had been met there.
    """

    def __init__(self, job: "Job", metrics: Metrics):
        self._job, self._metrics = job, metrics
        self._stager = open_stager() if job.config.train.async_checkpoints else None
        self._sharded = is_sharded(job.model)
        self._writers = World(job.world.device)  # where each rank has all, the first one writes alone
        if self._sharded:
            self._writers = job.world if self._stager is None else _apart(job.world, job.config.parallel.timeout_s)
        self._save: _Save | None = None

    def save(self) -> Path:
        """Write a checkpoint of the job as it is now, or begin to; returns where it will be.

        Raises as `check_finite` does, and as `write`.
        """
        self.wait()
        began = time.perf_counter()
        self._save = save = self._begin(began)
        save.blocked = time.perf_counter() - began
        if self._stager is None:
            self.wait()
        return save.path

    @property
    def busy(self) -> bool:
        """Whether a save is on its way."""
        return self._save is not None

    @property
    def writing(self) -> bool:
        """Whether this rank's part of it is not on the disk yet."""
        return self._save is not None and not self._save.written.done()

    def poll(self, writing: float) -> None:
        """Between two steps, knowing how many ranks are still ``writing``: end a save that is written, or failed."""
        if self._save is not None and not writing:
            self.wait()

    def wait(self) -> None:
        """Until the save on its way, if there is one, is on the disk; then a row of metrics tells of it."""
        if self._save is None:
            return
        save, self._save = self._save, None
        began = time.perf_counter()
        size, ended = save.ended() if self._sharded else self._job.world.together(save.ended)
        self._metrics.write(
            {
                "kind": "checkpoint",
                "step": save.step,
                "bytes": size,
                "blocked_seconds": save.blocked + time.perf_counter() - began,
                "written_seconds": ended - save.began,
            }
        )

    def settle(self) -> None:
        """As `wait`, before the run ends by an error that came to all ranks alike: one of the save is a warning."""
        if self._save is None:
            return
        path = self._save.path
        try:
            self.wait()
        except Exception as error:
            warnings.warn(f"{path}: was not saved: {error}", stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.wait()
            elif isinstance(error, GuardStop):
                self.settle()
            elif self._save is not None and not isinstance(error, SignalStop):
                self._see_off(self._save)
        finally:
            # a thread that still writes from the copy is ended with the process
            if self._stager is not None and (self._save is None or self._save.written.done()):
                self._stager.close()

    def _begin(self, began: float) -> _Save:
        found = snapshot(self._job)
        self._job.world.together(self._metrics.sync)
        self._job.world.together(lambda: check_finite(found))
        written: futures.Future[Written] = futures.Future()
        thread = None
        if not (self._sharded or self._job.world.leads):
            written.set_result((0, began))
        elif self._stager is None:
            _settle(written, lambda: self._write(found))
        else:
            copy = found.copied(self._stager)
            # a daemon: a second signal, which stops at once, does not wait for it
            work = (written, lambda: self._write(copy))
            thread = threading.Thread(target=_settle, args=work, name="saver", daemon=True)
            thread.start()
        return _Save(found.path, found.step, began, written, thread)

    def _write(self, found: Snapshot) -> Written:
        size, config = write(found, self._writers), self._job.config.train
        ended = time.perf_counter()
        run_dir = self._job.run_dir
        self._writers.by_lead(lambda: prune(run_dir, config.keep_checkpoints, found.path, config.keep_best))
        return size, ended

    def _see_off(self, save: _Save) -> None:
        """The run ends by an error, which is told first; the ranks that share a save may never end it."""
        if not self._sharded:
            futures.wait([save.written])
        if save.written.done() and (error := save.written.exception()) is not None:
            warnings.warn(f"{save.path}: was not saved: {error}", stacklevel=3)


def _settle(written: futures.Future[Written], work: Callable[[], Written]) -> None:
    try:
        written.set_result(work())
    except Exception as error:
        written.set_exception(error)


def _apart(world: World, timeout_s: float) -> World:
    """The same ranks with groups of their own: what threads tell each other never meets what training does."""
    group = words_group(timeout_s)
    return replace(world, control=group, patient=group)
