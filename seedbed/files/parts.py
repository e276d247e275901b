"""Long analyses in parts: what is finished is kept, so that an interrupted one goes on where it was."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from seedbed.errors import InputError
from seedbed.files.atomic import naming, write_atomic
from seedbed.files.jsonl import read_jsonl

FILE = "parts.jsonl"


class Parts:
    """JSON values by name in ``folder/parts.jsonl``, each written as soon as it is known; without a folder in memory.
    Before the first one nothing is written. Who holds the folder removes the file when the results are written.

    ``key`` is everything that decides the values: files with their hashes, options, versions. What was kept under
    another key is dropped, a last line that was cut off is made again.
    """

    def __init__(self, folder: Path | None, key: Any):
        self._file = None if folder is None else folder / FILE
        self._head = json.loads(json.dumps(key))
        self._known: dict[str, Any] = {}
        self._begun = False
        if self._file is not None and self._file.is_file():
            self._known = _kept(self._file, self._head)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of ``name``: kept, or what ``make()`` gives, a JSON value (NaN and infinity too)."""
        if name not in self._known:
            self._known[name] = make()
            if self._file is not None:
                self._write(self._file, name)
        return self._known[name]

    def _write(self, file: Path, name: str) -> None:
        """Add the part; the first time write all anew, without what was kept under another key or cut off."""
        if self._begun:
            with naming(file), open(file, "a", encoding="utf-8") as out:
                out.write(_line((name, self._known[name])))
        else:
            write_atomic(file, "".join(map(_line, (self._head, *self._known.items()))))
            self._begun = True


def kept_analysis(folder: Path) -> str | None:
    """The analysis whose parts ``folder`` keeps, by its key; None where there are none, or it cannot be told."""
    try:
        head = next((value for _, value in read_jsonl(folder / FILE)), None)
    except (InputError, OSError):
        return None
    return head.get("analysis") if isinstance(head, dict) else None


def _kept(file: Path, head: Any) -> dict[str, Any]:
    known: dict[str, Any] = {}
    lines: Iterator[Any] = (value for _, value in read_jsonl(file))
    with suppress(InputError, OSError):  # a last line that was cut off: its part is made again
        if next(lines, None) == head:
            for name, value in lines:
                known[name] = value
    return known


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
