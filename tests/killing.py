"""Processes that are killed, for tests, right before a chosen change to the disk."""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def at_change(number: int, act: Callable[[], None]) -> None:
    """From now on count this process's changes to the disk, in any thread; before number ``number``, from 0, ``act()``.

    A change is a file opened for writing or a change of names. What libraries in other languages do is not seen, nor
    are flushes, which make no difference to a process that is killed.
    """
    count = itertools.count()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)  # (path, mode, flags)
        if (writes or event in _CHANGES) and next(count) == number:
            act()

    sys.addaudithook(hook)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(number: int | None, work: Callable[[], Any]) -> bool:
    """Run ``work`` in a forked process that is killed before its ``number``-th change to the disk (None: never);
    False if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            if number is not None:
                at_change(number, die)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return os.WIFSIGNALED(status)
