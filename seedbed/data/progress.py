"""Progress of work whose length is not known beforehand."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SECONDS_BETWEEN_LINES = 60.0


def say(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def spinner(title: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr with the time taken; yields a function that sets what it says after the title.

    Where stderr is no terminal (a file, a pipe) the line is printed every minute, and when the work has ended well.
    """
    console = Console(stderr=True)
    if console.is_interactive:
        told = TextColumn("{task.description} {task.fields[state]}", markup=False)  # names may have brackets
        columns = SpinnerColumn(), told, TimeElapsedColumn()
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(title, total=None, state="")
            yield lambda state: progress.update(task, state=state)
        return
    start, said, ended = time.monotonic(), "", threading.Event()

    def set_state(state: str) -> None:
        nonlocal said
        said = state

    def line() -> None:
        spent = time.monotonic() - start
        console.print(f"{title} {said} ({spent:.0f} s)", soft_wrap=True, markup=False, highlight=False)

    def every_minute() -> None:  # also while nothing changes: one file may take hours
        while not ended.wait(SECONDS_BETWEEN_LINES):
            line()

    ticker = threading.Thread(target=every_minute, daemon=True)
    ticker.start()
    try:
        yield set_state
    finally:
        ended.set()
        ticker.join()
    line()
