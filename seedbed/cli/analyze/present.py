"""What all analyses share: options, the folder that keeps their parts, and how a result is shown."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.output import console, finite, note, print_json, table
from seedbed.errors import InputError, SignalStop

if TYPE_CHECKING:
    from seedbed.files.parts import Parts
    from seedbed.measure.table import Rows
    from seedbed.report.sections import Page

MODEL = "a run, a checkpoint of a run, a Hugging Face folder, or a GGUF file"
MODELS = "Runs, checkpoints of runs, Hugging Face folders, GGUF files"
Data = Annotated[
    list[Path] | None,
    typer.Option(
        "--data", help="Texts to read: JSONL, text or Parquet files, folders of them, stores; may be repeated.",
        show_default="what runs hold out of their stores",
    ),
]  # fmt: skip
Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", help="Folder for the page, its tables (CSV), its figures (SVG, PNG) and everything as JSON.",
        show_default=False,
    ),
]  # fmt: skip


def documents_option(default: str) -> Any:
    return typer.Option("--documents", min=1, help="Documents to read, in turns from the files.", show_default=default)


def length_option(default: int) -> Any:
    """``--length``, which `common_length` makes a number."""
    return typer.Option(
        "--length",
        min=2,
        help="Tokens that a document is cut to; every model must read so many.",
        show_default=f"{default}, or what all models read",
    )


@contextmanager
def work(out: Path | None, overwrite: bool) -> Iterator[Callable[[Any], "Parts"]]:
    """Check ``out``, before anything is loaded, and hold it for this process. Yields what opens, for a key, the parts
    that are kept there, so that the same command goes on after an interruption; they go when the block ends well.

    Raises InputError where ``out`` has a result, and ``overwrite`` is not asked for, or parts of another analysis, or
    something else, or another process works in it; SignalStop, which says what is kept, for Ctrl-C.
    """
    from seedbed.files.lock import folder_lock
    from seedbed.files.parts import FILE, Parts, kept_analysis

    def keep(key: Any) -> Parts:
        other = None if out is None else kept_analysis(out)
        if other not in (None, key["analysis"]) and not overwrite:
            command = other if other == "eval" else f"analyze {other}"
            raise InputError(
                f"{out}: keeps what an interrupted `seedbed {command}` had finished; finish that, choose another "
                "folder or pass --overwrite"
            )
        parts = Parts(out, key)
        if len(parts):
            note(f"{out}: goes on; {len(parts)} parts were measured before")
        elif out is not None and (out / FILE).exists():
            note(f"{out}: what is kept there is of other files, options or versions; all is measured anew")
        return parts

    def kept() -> str:
        if out is None:
            return "nothing is kept without -o FOLDER"
        if not (out / FILE).exists():
            return "nothing was finished yet"
        return f"what was finished is kept in {out}, and the same command goes on from there"

    _check(out, overwrite)
    with interruptible(kept), nullcontext() if out is None else folder_lock(out):
        _check(out, overwrite)  # another process may have come to its end meanwhile
        yield keep
        if out is not None:
            for name in (FILE, ".lock"):
                (out / name).unlink(missing_ok=True)


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C say what is ``kept`` by then."""
    try:
        yield
    except KeyboardInterrupt:
        raise SignalStop(signal.SIGINT, kept()) from None


def _check(out: Path | None, overwrite: bool) -> None:
    if out is None or not (out.exists() or out.is_symlink()):
        return
    from seedbed.files.parts import FILE
    from seedbed.report.results import RESULT

    if not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the results")
    if (out / RESULT).exists() and not overwrite:
        raise InputError(f"{out}: holds a result already; choose another folder or pass --overwrite")
    names = {path.name for path in out.iterdir()} - {".lock"}
    if names and names.isdisjoint((RESULT, FILE)):
        raise InputError(f"{out}: holds other files; name a new folder")


def command_line() -> str:
    """As it was typed, for a page's provenance."""
    return shlex.join(["seedbed", *sys.argv[1:]])


def present(result: Any, page: "Page", tables: Mapping[str, "Rows[Any]"], out: Path | None, as_json: bool) -> None:
    """Show ``result``, a dataclass, and write its folder. The page's provenance stands in the JSON beside it."""
    from seedbed.report.results import write_results

    document = finite({"provenance": dict(page.provenance), **asdict(result)})
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
    if shown is None:
        print("all rows  with --json, or with -o FOLDER as CSV beside a page of figures")
    else:
        print(f"report    {shown}")
        print(f"all rows  {', '.join(f'{name}.csv' for name in tables)} beside it")
