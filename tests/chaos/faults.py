"""What goes wrong: functions that are called in a process before its command, or on a file between two launches."""

import itertools
import os
import resource
import signal
import time
from pathlib import Path

from killing import at_change, die

DAY = 86400.0


def kill_at_change(number: int) -> None:
    """kill -9 right before a change to the disk."""
    at_change(number, die)


def kill_in_write(size: int) -> None:
    """Killed by the system in the middle of the write that takes a file past ``size`` bytes, whatever writes it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def signals_at_change(number: int, signum: int, pause: float | None = None) -> None:
    """A signal right before a change to the disk, noticed at once; a second one after a pause, in seconds."""

    def send() -> None:
        signal.raise_signal(signum)
        if pause is not None:
            time.sleep(pause)
            signal.raise_signal(signum)

    at_change(number, send)


def clock_jumps(killed_at: int) -> None:
    """The time of day is a day early, right, a day late, and so on, until the process is killed."""
    kill_at_change(killed_at)
    real, days = time.time, itertools.cycle((-DAY, 0.0, DAY))
    time.time = lambda: real() + next(days)


def machine_sleeps() -> None:
    """All clocks are a day further from their fortieth look on."""

    def sleepy(real, looks):
        return lambda: real() + (DAY if next(looks) >= 40 else 0.0)

    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, sleepy(getattr(time, name), itertools.count()))


def delete(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path) -> None:
    """One bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = (delete, truncate, flip)
