"""A preflight on the terminal: tables, memory and time, and the verdicts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as RichTable

from seedbed.cli.output import console, table

if TYPE_CHECKING:
    from seedbed.report.preflight import PreflightReport
    from seedbed.report.preflight_rows import Resources
    from seedbed.report.preflight_tables import Table

MARKS = {"warning": "!!", "note": " !", "good": " ✓"}


def show(report: "PreflightReport", stderr: bool = False) -> None:
    """Verdicts come last, where the eye is."""
    from seedbed.report.preflight import tables

    out = console(stderr)
    for one in tables(report.arms).values():
        for part in _fitting(one, out):
            out.print(part)
    out.print(_memory(report.resources))
    out.print(_time(report.resources))
    for arm, found in zip(report.arms, report.verdicts, strict=True):
        out.print(f"\nVerdict on {arm.title}")
        for verdict in found:
            out.print(f"{MARKS[verdict.level]} {verdict.text}")


def _fitting(one: "Table", out: Console) -> Iterator[RichTable]:
    """``one``, its arms spread over several tables where the terminal does not hold them side by side."""
    unbounded, start = out.options.update(max_width=10_000), 0
    while start < len(one.arms):
        stop = len(one.arms)
        while stop > start + 1 and out.measure(_rich(one, start, stop), options=unbounded).maximum > out.width:
            stop -= 1
        yield _rich(one, start, stop)
        start = stop


def _rich(one: "Table", start: int, stop: int) -> RichTable:
    """The columns of some arms; the parts of a cell stand one below the other, each set to the right."""
    columns = [[*labels] for labels in zip(one.labels, *(row.labels for row in one.rows), strict=True)]
    for index in range(start, stop):
        lines = [one.parts, *(row.cells[index] for row in one.rows)]
        sizes = [max(map(len, part)) for part in zip(*lines, strict=True)]
        head, *cells = ["  ".join(text.rjust(n) for text, n in zip(line, sizes, strict=True)) for line in lines]
        columns.append([f"{one.arms[index]}\n{head}" if head.strip() else one.arms[index], *cells])
    heads, *rows = map(list, zip(*columns, strict=True))
    return table(f"\n{one.title}", heads, rows, left=len(one.labels))


def _memory(resources: "Resources") -> RichTable:
    rows = [[part, f"{size / 2**20:,.1f}"] for part, size in resources.memory.items()]
    rows.append(["sum", f"{sum(resources.memory.values()) / 2**20:,.1f}"])
    return table("\nMemory of the run, MiB", ["part", "MiB"], rows)


def _time(resources: "Resources") -> str:
    from seedbed.train.progress import duration

    seconds = resources.step_seconds
    step = f"{seconds:.2g} s" if seconds < 10 else duration(seconds)
    return (
        f"\n{resources.steps:,} steps of {step}, {resources.tokens:,} tokens: about "
        f"{duration(resources.seconds)} on this machine, from one step on {resources.timed_tokens:,} tokens, timed in "
        f"{resources.timed_in}; evaluation and checkpoints apart"
    )
