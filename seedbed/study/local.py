"""Runs of a study on this machine, several at a time, each in a process of its own."""

import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from seedbed.errors import InputError, SignalStop
from seedbed.study.limits import gpus
from seedbed.study.memory import expected_mb, fits
from seedbed.study.outcome import read_outcome
from seedbed.study.process import Running, start
from seedbed.study.run import Ended, Engine, NextTask
from seedbed.study.work import Task
from seedbed.train.signals import StopRequest, catch_signals

POLL_S = 1.0
"""How often signals, memory and other studies' runs are looked at while nothing happens here."""


def local_engine(workers: int, say: Callable[[str], None]) -> Engine:
    """The engine that does ``workers`` runs at a time here, fewer where memory is short. Where there are GPUs each run
    sees one, that with the fewest runs.

    A run whose process is killed is tried once more, from its last checkpoint. SIGINT, SIGTERM and a full disk end the
    study after all runs have saved, a second signal at once. ``say`` receives lines for people. The engine raises
    SignalStop, and InputError where the disk is full.
    """

    def engine(next_task: NextTask, ended: Ended) -> None:
        running: list[Running] = []
        with catch_signals() as stop:
            try:
                _carry_out(workers, next_task, ended, say, running, stop)
            finally:
                _stop(running)
        if stop.signum is not None:
            raise SignalStop(stop.signum, "runs that were going on have saved; the same command goes on")

    return engine


def _carry_out(
    workers: int, next_task: NextTask, ended: Ended, say: Callable[[str], None], running: list[Running],
    stop: StopRequest,
) -> None:  # fmt: skip
    """Do tasks until nothing is left to do, or a signal comes; ``running`` has those that are going on."""
    waiting: list[Task] = []  # for memory, or to be tried again
    needs: dict[str, float] = {}
    peak, killed, short = 0.0, set[str](), False
    here, cards = os.getcwd(), gpus()
    while stop.signum is None:
        while len(running) < workers and (task := waiting.pop() if waiting else next_task()) is not None:
            needs[task.key] = max(peak, expected_mb(task))
            if running and not fits(needs[task.key], {one.pid: max(peak, needs[one.task.key]) for one in running}):
                waiting.append(task)
                if not short:
                    say(f"memory is short: a run needs {needs[task.key]:,.0f} MB; for now {len(running)} at a time")
                short = True
                break
            busy = [one.gpu for one in running]
            running.append(start(task, here, min(cards, key=busy.count, default=None)))
        if not running:
            return
        done = wait([one.said for one in running], POLL_S)
        for one in [one for one in running if one.said in done]:
            running.remove(one)
            end, task = one.end(), one.task
            if end.disk_full:
                raise InputError(f"{task.name}: {end.reason}")
            if end.signum is None:
                outcome = read_outcome(Path(task.folder)) if end.reason is None else None
                peak = max(peak, outcome.peak_mb if outcome else 0.0)
                ended(task, end.reason)
            elif stop.signum is None and task.key in killed:
                ended(task, f"{end.reason}, twice")
            elif stop.signum is None:
                say(f"{task.name}: {end.reason}; it is tried once more")
                killed.add(task.key)
                waiting.append(task)


def _stop(running: list[Running]) -> None:
    """End what still runs, after saving; at once where a second signal comes meanwhile."""
    try:
        for one in running:
            one.process.terminate()
        for one in running:
            one.end()
    except BaseException:
        for one in running:
            with suppress(ValueError):  # has ended
                one.process.kill()
        raise
