"""The standard streams of a command: whatever becomes of them, what is said to people never fails the work."""

import io
import os
import sys
from typing import Any


class _Unheard(io.FileIO):
    """A file that takes what cannot be written: its reader has gone, or its disk is full."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_streams() -> None:
    """Make stdout and stderr write UTF-8, and stderr also into nothing.

    Those that were closed (``>&-``) are opened onto nothing: else print would write for stderr to stdout, and the next
    file that is opened would have its number, and get what libraries write there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Unheard(2, "w", closefd=False)), line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # also what tests put in their place
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
