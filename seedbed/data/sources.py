"""Documents from JSON lines."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seedbed.errors import InputError
from seedbed.files.jsonl import OnBad, ReadCounts, read_jsonl

SplitName = Literal["train", "heldout"]
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}


class Document(NamedTuple):
    """One text. ``split`` is set where the source decides it; otherwise the store does."""

    id: str
    text: str
    split: SplitName | None = None


def natural_order(paths: Iterable[str | Path]) -> list[Path]:
    """Paths sorted by name with runs of digits as numbers (shard 2 before 10), whatever order they came in."""

    def key(path: Path) -> tuple[list[str | int], str]:
        # split with a group alternates text and digits, so that equal positions hold equal types
        pieces = re.split(r"([0-9]+)", path.as_posix())
        return [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)], path.as_posix()

    return sorted(map(Path, paths), key=key)


def read_documents(
    paths: Iterable[str | Path], field: str = "text", on_bad: OnBad = "strict", counts: ReadCounts | None = None
) -> Iterator[Document]:
    """Documents of JSONL files (plain, .gz, .zst) in natural order of the file names.

    A document's id is the record's "id" if that is a string or a number, else "file-stem:line". Empty and
    whitespace-only texts are skipped. Lone surrogates, which UTF-8 cannot hold, become U+FFFD. Both are counted in
    ``counts``, as are, where ``on_bad`` is "skip", lines that are not JSON objects with a string at ``field``; under
    "strict" the first such line raises InputError with file, line and field. Raises InputError at once for a file
    that is missing or given twice, and at the end when no document is left.
    """
    files = natural_order(paths)
    if not files:
        raise InputError("no input file given; name one or more JSONL files")
    for file in files:
        if not file.is_file():
            if file.is_dir():
                raise InputError(f"{file}: is a folder; name the files in it")
            problem = "not a regular file; write its content into one first" if file.exists() else "no such file"
            raise InputError(f"{file}: {problem}")
    resolved = [file.resolve() for file in files]
    for index, file in enumerate(resolved):
        if file in resolved[:index]:
            raise InputError(f"{files[index]}: given twice; its documents would be read twice")
    return _documents(files, field, on_bad, ReadCounts() if counts is None else counts)


def _documents(files: list[Path], field: str, on_bad: OnBad, counts: ReadCounts) -> Iterator[Document]:
    found = False
    for file in files:
        stem = file.name.split(".")[0]
        for number, record in read_jsonl(file, on_bad, counts):
            problem = _problem(record, field)
            if problem is not None:
                reason, detail = problem
                if on_bad == "strict":
                    raise InputError(f"{file}:{number}: {detail}")
                counts.skipped[reason] += 1
                continue
            text, identity = record[field], record.get("id")
            if not text.strip():
                counts.skipped["empty text"] += 1
                continue
            named = isinstance(identity, str | int) and not isinstance(identity, bool)
            found = True
            yield Document(
                _without_surrogates(str(identity), counts) if named else f"{stem}:{number}",
                _without_surrogates(text, counts),
            )
    if not found:
        why = ", ".join(f"{count} × {reason}" for reason, count in counts.skipped.items()) or "the input is empty"
        raise InputError(f"{files[0]}{' and others' if len(files) > 1 else ''}: no document left ({why})")


def _problem(record: Any, field: str) -> tuple[str, str] | None:
    """What keeps a record from being a document: (reason to count it under, description), or None."""
    if not isinstance(record, dict):
        return "not an object", f"{_describe(record)}, not an object with a {field!r} field"
    if field not in record:
        keys = ", ".join(sorted(record)[:12]) or "none"
        return f"no field {field!r}", f"no field {field!r}; the keys there are: {keys}. Name the text's with --field"
    if not isinstance(record[field], str):
        kind = _describe(record[field])
        return f"{field!r} is not a string", f"field {field!r} is {kind}, not a string (--on-bad skip leaves it out)"
    return None


def _describe(value: Any) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), "a string")


def _without_surrogates(text: str, counts: ReadCounts) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text, count = _SURROGATE.subn("�", text)
        counts.repaired["lone surrogates replaced by U+FFFD"] += count
    return text
