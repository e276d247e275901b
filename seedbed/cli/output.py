"""What a command prints: one JSON document, or a summary for people."""

import json
import sys
import unicodedata
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; everything else on stderr.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Overrides such as optim.lr=1e-3.", show_default=False)]


def note(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """JSON has no NaN or infinity: they become null."""
    print(json.dumps(finite(value), ensure_ascii=False, indent=2, allow_nan=False), flush=True)


def finite(value: Any) -> Any:
    """``value`` with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")) else value


def is_visible(character: str) -> bool:
    """Whether a terminal shows it: nothing that moves the cursor, changes colours or turns the direction of text."""
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


def visible(text: str) -> str:
    """``text`` with escapes (`\\x1b`, `\\u202e`) for what a terminal would not show."""
    return "".join(c if is_visible(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def table(title: str, columns: list[str], rows: list[list[str]], left: int = 1) -> Table:
    """A table whose first ``left`` columns are text and the others numbers, set to the right."""
    # Text, not markup: a folder's name or a cell may hold anything
    result = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        result.add_column(Text(column), justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        result.add_row(*map(Text, row))
    return result


def console(stderr: bool = False) -> Console:
    """Wide enough for the tables where the output is a file or a pipe."""
    out = Console(stderr=stderr, highlight=False)
    return out if out.is_terminal else Console(stderr=stderr, highlight=False, width=140)
