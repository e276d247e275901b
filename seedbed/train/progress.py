"""Progress of a run on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

SECONDS_BETWEEN_LINES = 10.0

Report = Callable[[int, float, float], None]
"""Called with (completed steps, loss, tokens a second)."""


def duration(seconds: float) -> str:
    """``42 s``, ``5 min 03 s``, ``2 h 07 min`` or ``3.4 days``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole / 86400:,.1f} days"


@contextmanager
def training_progress(steps: int, start: int, quiet: bool = False) -> Iterator[Report]:
    """Yields the function that the loop calls after each step; ETA from the mean pace of this process. ``quiet``: it
    shows nothing."""
    if quiet:
        yield lambda done, loss, rate: None
        return
    began = time.perf_counter()

    def line(done: int, loss: float, rate: float) -> str:
        spent = time.perf_counter() - began
        eta = spent / max(done - start, 1) * (steps - done)
        return f"loss {loss:.4f} · {rate:,.0f} tokens/s · ETA {duration(eta)}"

    if sys.stderr.isatty():
        columns = (TextColumn("train {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=steps, completed=start)
            yield lambda done, loss, rate: bar.update(task, completed=done, description=line(done, loss, rate))
        return

    last = [began - SECONDS_BETWEEN_LINES]

    def report(done: int, loss: float, rate: float) -> None:
        if done == steps or time.perf_counter() - last[0] >= SECONDS_BETWEEN_LINES:
            last[0] = time.perf_counter()
            print(f"train {done}/{steps} · {line(done, loss, rate)}", file=sys.stderr, flush=True)

    yield report
