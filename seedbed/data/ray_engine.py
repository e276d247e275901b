"""Units on a Ray cluster, through datatrove's executor. The store's folder must be seen by every machine."""

import json
import logging
import os
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbed.data.stages import Engine, Unit, facts_of, run_unit
from seedbed.errors import GuardStop, InputError
from seedbed.files.atomic import write_atomic

MEMORY_GB = 1  # reserved for a unit: it holds some tens of megabytes of text and their tokens


class _UnitOfRank:
    """datatrove's pipeline step: rank i of a task does unit i. What went wrong is left for the caller to raise."""

    def __init__(self, units: Sequence[Unit], troubles: Path):
        self.units, self.troubles, self.folder = list(units), troubles, Path.cwd()

    def __call__(self, _data: Any, rank: int, _world_size: int) -> Iterable[Any]:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.chdir(self.folder)  # paths of sources may be relative
        try:
            run_unit(self.units[rank])
        except Exception as error:
            trouble = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
            write_atomic(self.troubles / f"{rank:06d}.json", json.dumps(trouble))
            raise
        return ()


@contextmanager
def ray_engine(workers: int, work: Path) -> Iterator[Engine]:
    """Units as tasks of datatrove's RayPipelineExecutor, ``workers`` at a time; a worker that dies is replaced.

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
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)

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
            if facts_of(unit) is not None:
                finished()
        shutil.rmtree(place)

    try:
        yield run
    finally:
        if started:
            ray.shutdown()


def _raise(trouble: dict[str, str]) -> None:
    for kind in (InputError, GuardStop):
        if trouble["kind"] == kind.__name__:
            raise kind(trouble["message"])
    raise RuntimeError(trouble["traceback"])
