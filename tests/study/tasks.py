"""Runs for tests of engines: what stands for training is a function here, which another process can import."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import tiny

from seedbed.config import Config
from seedbed.errors import GuardStop, InputError, SignalStop
from seedbed.study.run import NextTask
from seedbed.study.work import Task
from seedbed.train.setup import resolve
from seedbed.train.signals import catch_signals


def task(store: Path, runs: Path, name: str, train: Callable[[Config], None], *overrides: str) -> Task:
    config, _ = resolve(tiny.config(store, runs / name, *overrides))
    return Task(name, f"arm {name}", str(runs / name), config.dump(), (), None, None, 1, train)


def one_after_another(*tasks: Task) -> NextTask:
    left = list(tasks)
    return lambda: left.pop(0) if left else None


def place(config: Config) -> Path:
    """The run's folder, made."""
    assert config.run.dir is not None
    folder = Path(config.run.dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def note(config: Config) -> None:
    """Leaves traces: it was here, in this process."""
    with open(place(config) / "done", "a", encoding="ascii") as file:
        file.write(f"{os.getpid()} {os.environ.get('OMP_NUM_THREADS')}\n")
    print("trained")


def see(config: Config) -> None:
    """Leaves which GPUs it sees, and waits until b has done so too."""
    folder = place(config)
    (folder / "gpu").write_text(str(os.environ.get("CUDA_VISIBLE_DEVICES")))
    wait_for(folder.parent / "b" / "gpu")


def die_once(config: Config) -> None:
    flag = place(config) / "died"
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note(config)


def die(config: Config) -> None:
    note(config)
    os.kill(os.getpid(), signal.SIGKILL)


def crash(config: Config) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def refuse(config: Config) -> None:
    raise InputError("store: bad\nvery")


def stumble(config: Config) -> None:
    raise ZeroDivisionError("a mistake of ours")


def fill_the_disk(config: Config) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here")


def fill_the_disk_in_a_checkpoint(config: Config) -> None:
    try:
        fill_the_disk(config)
    except OSError as error:
        raise InputError("checkpoint: needs 5 MB, its disk has 1 MB") from error


def diverge(config: Config) -> None:
    raise GuardStop("step 3: the loss is not finite")


def until_told(config: Config) -> None:
    """Trains for a minute; a signal makes it save."""
    folder = place(config)
    with catch_signals() as stop:
        (folder / "began").touch()
        for _ in range(600):
            if stop.signum is not None:
                (folder / "saved").touch()
                raise SignalStop(stop.signum, "saved")
            time.sleep(0.1)


def wait_for(*paths: Path, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until, f"{paths} did not appear"
        time.sleep(0.02)
