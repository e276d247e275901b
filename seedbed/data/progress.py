"""Progress of work whose length is not known beforehand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def spinner(title: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr with the time taken; yields a function that sets what it says after the title."""
    columns = SpinnerColumn(), TextColumn("{task.description} {task.fields[state]}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None, state="")
        yield lambda state: progress.update(task, state=state)
