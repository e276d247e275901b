"""Long analyses in parts: what is finished is kept, so that an interrupted one goes on where it was."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from seedbed.errors import InputError
from seedbed.files.jsonl import read_jsonl

FILE = "parts.jsonl"


class Parts:
    """JSON values by name in ``folder/parts.jsonl``, each written as soon as it is known; without a folder in memory.

    ``key`` is everything that decides the values: files with their hashes, options, versions. What was kept under
    another key is dropped, a last line that was cut off is made again.
    """

    def __init__(self, folder: Path | None, key: Any):
        self._file = None if folder is None else folder / FILE
        self._known: dict[str, Any] = {}
        head = json.loads(json.dumps(key))
        if self._file is not None and self._file.is_file():
            self._known = _kept(self._file, head)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(self._file, "w", encoding="utf-8") as out:
                _line(out, head)
                for pair in self._known.items():
                    _line(out, pair)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of ``name``: kept, or what ``make()`` gives, a JSON value (NaN and infinity too)."""
        if name not in self._known:
            value = make()
            if self._file is not None:
                with open(self._file, "a", encoding="utf-8") as out:
                    _line(out, (name, value))
            self._known[name] = value
        return self._known[name]

    def close(self) -> None:
        """Remove the file: the results are written, nothing needs to go on."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _kept(file: Path, head: Any) -> dict[str, Any]:
    lines: Iterator[Any] = (value for _, value in read_jsonl(file))
    try:
        if next(lines, None) != head:
            return {}
        return _pairs(lines)
    except (InputError, OSError):
        return {}


def _pairs(lines: Iterable[Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    try:
        for name, value in lines:
            known[name] = value
    except InputError:  # the last line was cut off
        pass
    return known


def _line(out: Any, value: Any) -> None:
    out.write(json.dumps(value, ensure_ascii=False) + "\n")
    out.flush()
