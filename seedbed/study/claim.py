"""One process a run, also where studies share a folder of runs: who has locked a run's log is doing it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def log_of(folder: str | Path) -> Path:
    """Where the processes of a run write what they say; beside its folder, which is made whole or not at all."""
    folder = Path(folder)
    return folder.with_name(f"{folder.name}.log")


@contextmanager
def claimed(folder: str | Path) -> Iterator[TextIO]:
    """Hold the run in ``folder`` for this process, after any other that does; the system lets go of it even when the
    process is killed. Yields the run's log, open for appending.
    """
    with open(log_of(folder), "a", encoding="utf-8") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield log


def is_claimed(folder: str | Path) -> bool:
    """Whether some process is doing the run in ``folder`` now."""
    try:
        with open(log_of(folder), "r+", encoding="utf-8") as log:  # NFS locks for writing what is open for it
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
