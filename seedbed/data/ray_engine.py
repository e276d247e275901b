"""Units on a Ray cluster, through datatrove's executor. The store's folder must be seen by every machine."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from seedbed.data.stages import KILLED, Engine, Unit, facts_of, run_unit, use_one_core
from seedbed.errors import GuardStop, InputError
from seedbed.files.atomic import write_atomic

MEMORY_GB = 1  # reserved for a unit: it holds some tens of megabytes of text and their tokens


class _UnitOfRank:
    """datatrove's pipeline step: rank i of a task does unit i. What went wrong is left for the caller to raise.

    datatrove calls it in a pool, which would wait forever for a process that was killed, and which stays behind where
    Ray's own process is killed. So the unit has a process of its own, and this one looks after both.
    """

    def __init__(self, units: Sequence[Unit], troubles: Path):
        self.units, self.troubles, self.folder = list(units), troubles, Path.cwd()

    def __call__(self, _data: Any, rank: int, _world_size: int) -> Iterable[Any]:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # how the pool ends its processes: Ray would report a crash
        parent = os.getppid()
        process = multiprocessing.get_context("fork").Process(target=self._do, args=(rank,))
        process.start()
        while process.exitcode is None:
            process.join(1)
            if os.getppid() != parent:  # Ray's process is gone, and another one gets the unit
                process.kill()
                os._exit(1)
        if process.exitcode:
            if process.exitcode < 0:
                self._leave(rank, {"kind": "GuardStop", "message": KILLED})
            raise ChildProcessError(f"unit {rank} failed")
        return ()

    def _do(self, rank: int) -> None:
        use_one_core()
        os.chdir(self.folder)  # paths of sources may be relative
        try:
            run_unit(self.units[rank])
        except Exception as error:
            trouble = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            if isinstance(error, OSError):
                trouble |= {"os": [error.errno, error.strerror, error.filename]}
            self._leave(rank, trouble)
            os._exit(1)

    def _leave(self, rank: int, trouble: dict[str, Any]) -> None:
        write_atomic(self.troubles / f"{rank:06d}.json", json.dumps(trouble))


@contextmanager
def ray_engine(workers: int, work: Path) -> Iterator[Engine]:
    """Units as tasks of datatrove's RayPipelineExecutor, ``workers`` at a time; a worker of Ray that dies is replaced.

    Joins the cluster of RAY_ADDRESS, or starts Ray on this machine. Logs and troubles of the tasks lie in ``work``
    while they run. Raises InputError where Ray or datatrove is not installed.
    """
    try:
        import ray
        from datatrove.executor import RayPipelineExecutor
        from datatrove.utils.logging import logger
    except ImportError as error:
        raise InputError(f"engine ray: {error.name} is not installed; pip install 'seedbed[scale]'") from None
    logger.remove()  # its lines about every task; troubles are raised here instead
    started = not ray.is_initialized()
    if started:
        stop = signal.getsignal(signal.SIGTERM)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)  # Ray put one of its own in place

    def run(units: Sequence[Unit], finished: Callable[[], None]) -> None:
        place = (work / "ray").resolve()
        shutil.rmtree(place, ignore_errors=True)
        troubles = place / "troubles"
        troubles.mkdir(parents=True)
        absolute = [Unit(unit.folder.resolve(), unit.key, unit.work, unit.arguments) for unit in units]
        RayPipelineExecutor(
            pipeline=[_UnitOfRank(absolute, troubles)],
            tasks=len(units),
            workers=workers,
            logging_dir=str(place / "logs"),
            mem_per_cpu_gb=MEMORY_GB,
        ).run()
        for trouble in sorted(troubles.iterdir()):
            _raise(json.loads(trouble.read_text(encoding="utf-8")))
        for unit in units:
            if facts_of(unit, verify=False) is None:
                raise GuardStop(KILLED)
            finished()
        shutil.rmtree(place)

    with redirect_stdout(sys.stderr):  # where Ray says that a worker died
        try:
            yield run
        finally:
            if started:
                ray.shutdown()


def _raise(trouble: dict[str, Any]) -> None:
    for kind in (InputError, GuardStop):
        if trouble["kind"] == kind.__name__:
            raise kind(trouble["message"])
    if "os" in trouble:
        raise OSError(*trouble["os"])
    raise RuntimeError(trouble["traceback"])
