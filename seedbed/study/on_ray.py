"""Runs of a study on a Ray cluster. The folders of runs and stores must be seen by every machine under one path."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from seedbed.errors import InputError, SignalStop
from seedbed.study.outcome import settled
from seedbed.study.process import End, one_line, start
from seedbed.study.run import Ended, Engine, NextTask
from seedbed.study.work import Task
from seedbed.train.signals import StopRequest, catch_signals

POLL_S = 1.0
RETRIES = 2
"""A run whose worker or machine is lost is submitted again so often; it goes on from its last checkpoint."""
SEEN_S = 60.0
"""After so many seconds a network file system shows to all what one has written (NFS: acdirmax)."""


def ray_engine(workers: int, say: Callable[[str], None]) -> Engine:
    """The engine that does ``workers`` runs at a time as tasks of Ray, each with as many CPUs as it has threads, and a
    GPU where the cluster has some and the run may use one.

    Joins the cluster of RAY_ADDRESS, or starts Ray on this machine. Signals and a full disk end the study as they do
    here (study/local.py). Raises InputError where Ray is not installed; the engine does where no machine is large
    enough, and where what a run wrote is not seen here.
    """
    try:
        import ray
    except ImportError:
        raise InputError("engine ray: ray is not installed; pip install 'seedbed[scale]'") from None

    def engine(next_task: NextTask, ended: Ended) -> None:
        running: dict[Any, Task] = {}
        with _joined(ray), catch_signals() as stop:
            say(f"Ray: {len(_alive(ray))} machines, {ray.cluster_resources().get('CPU', 0):g} CPUs")
            try:
                _carry_out(ray, workers, next_task, ended, running, stop)
            finally:
                for reference in running:
                    ray.cancel(reference)
                if running:
                    ray.wait(list(running), num_returns=len(running))
        if stop.signum is not None:
            raise SignalStop(stop.signum, "runs that were going on have saved; the same command goes on")

    return engine


def _carry_out(
    ray: Any, workers: int, next_task: NextTask, ended: Ended, running: dict[Any, Task], stop: StopRequest
) -> None:
    do, here = ray.remote(_do), os.getcwd()
    while stop.signum is None:
        while len(running) < workers and (task := next_task()) is not None:
            running[do.options(max_retries=RETRIES, **_resources(ray, task)).remote(task, here)] = task
        if not running:
            return
        done, _ = ray.wait(list(running), timeout=POLL_S)
        for reference in done:
            task = running.pop(reference)
            try:
                end: End = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                end = End(one_line(error.cause))
            except ray.exceptions.RayError as error:
                end = End(f"lost on the cluster {RETRIES + 1} times: {one_line(error)}"[:300])
            if end.disk_full:
                raise InputError(f"{task.name}: {end.reason}")
            if end.reason is None:
                _require_seen(Path(task.folder))
            ended(task, end.reason)


def _do(task: Task, folder: str) -> End:
    """A run, in a process beside that of Ray, which looks after it; killed, it is tried once more.

    When the study is stopped Ray raises KeyboardInterrupt here.
    """
    for last in (False, True):
        # Ray's worker may have been given another GPU than when the process that runs are forked from began
        running = start(task, folder, os.environ.get("CUDA_VISIBLE_DEVICES"))
        try:
            while not running.said.poll(POLL_S):
                pass
        except BaseException:
            running.process.terminate()
            running.end()
            raise
        end = running.end()
        if end.signum is None or last:
            break
    return end


def _resources(ray: Any, task: Task) -> dict[str, int]:
    """What Ray is asked for. Raises InputError where no machine has it, for which Ray would wait without end."""
    most = max(node["Resources"].get("CPU", 0) for node in _alive(ray))
    if task.threads > most:
        raise InputError(f"engine ray: a run has {task.threads} threads, the largest machine {most:g} CPUs; lower them")
    on_gpu = task.config["train"]["device"] != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
    return {"num_cpus": task.threads, "num_gpus": int(on_gpu)}


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _require_seen(folder: Path) -> None:
    until = time.monotonic() + SEEN_S
    while settled(folder) is None and time.monotonic() < until:
        time.sleep(0.5)
    if settled(folder) is None:
        raise InputError(
            f"{folder}: what a machine of the cluster wrote there is not seen here; name a folder that all machines "
            "share under this path"
        )


@contextmanager
def _joined(ray: Any) -> Iterator[None]:
    """Within the block Ray is there."""
    started = not ray.is_initialized()
    if started:
        stop = signal.getsignal(signal.SIGTERM)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)  # Ray put one of its own in place
    with redirect_stdout(sys.stderr):  # where Ray says that a worker died
        try:
            yield
        finally:
            if started:
                ray.shutdown()
