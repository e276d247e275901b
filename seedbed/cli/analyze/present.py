"""What every analysis does with its result: tables in the terminal or one JSON document, and a folder on request."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.output import console, finite, note, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.analysis.parts import Parts
    from seedbed.measure.table import Rows
    from seedbed.report.sections import Page

Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", help="Folder for the page, its tables (CSV), its figures (SVG, PNG) and everything as JSON.",
        show_default=False,
    ),
]  # fmt: skip
Data = Annotated[
    list[Path],
    typer.Option(
        "--data",
        help="Texts to read: JSONL, text or Parquet files, folders of them, stores; may be repeated.",
    ),
]


@contextmanager
def work(out: Path | None, overwrite: bool, key: Any, title: str) -> Iterator[tuple["Parts", Callable[[str], None]]]:
    """What a long analysis needs: parts that are kept in ``out``, so that the same command goes on after an
    interruption, and a function that shows how far it is.

    Raises InputError, before anything is measured, where ``out`` has a result, and ``overwrite`` is not asked for, or
    holds something else.
    """
    from seedbed.analysis.parts import FILE, Parts
    from seedbed.data.progress import spinner
    from seedbed.report.results import RESULT

    if out is not None and (out.exists() or out.is_symlink()):
        if not out.is_dir():
            raise InputError(f"{out}: is a file; name a folder for the results")
        if (out / RESULT).exists() and not overwrite:
            raise InputError(f"{out}: holds a result already; choose another folder or pass --overwrite")
        if any(out.iterdir()) and not any((out / name).exists() for name in (RESULT, FILE)):
            raise InputError(f"{out}: holds other files; name a new folder")
    parts = Parts(out, key)
    if len(parts):
        note(f"{out}: goes on; {len(parts)} parts were measured before")
    with spinner(title) as say:
        yield parts, say
    parts.close()


def command_line() -> str:
    """As it was typed, for a page's provenance."""
    return shlex.join(["seedbed", *sys.argv[1:]])


def present(
    result: Any, page: "Page", tables: Mapping[str, "Rows[Any]"], out: Path | None, as_json: bool, **extra: Any
) -> None:
    """Show ``result``, a dataclass, and write its folder. ``extra`` stands in the JSON beside it."""
    from seedbed.report.results import write_results

    document = finite({**extra, **asdict(result)})
    shown = None if out is None else write_results(out, page, tables, document)
    if as_json:
        print_json({"report": None if shown is None else str(shown), **document})
        return
    screen = console()
    for section in page.sections:
        for view in section.tables:
            if view.brief:
                screen.print(table(view.title, list(view.columns), [list(row) for row in view.rows], view.left))
        for problem in section.problems:
            note(problem)
    for what, value in page.tiles.items():
        print(f"{what}: {value}")
    if shown is not None:
        print(f"report    {shown}")
