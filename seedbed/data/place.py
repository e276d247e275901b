"""Whether a folder may become a store, or is already the one that is asked for."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage, listed

REQUEST = "request.json"
LISTS = ("rejects.jsonl", "duplicates.jsonl", "chat_template.jinja")
OURS = {REQUEST, "header.json", COMMIT, ".lock", "work", "tokenizer", "train", "heldout", *LISTS}
SAID = 5  # differences that a message lists


def check_place(out: Path, inputs: Iterable[str]) -> None:
    """Raise InputError where a store at ``out`` would destroy, or seem to be, anything but a store."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder, or move the file away")
    place = out.resolve()
    for path in inputs:
        if Path(path).resolve().is_relative_to(place):
            raise InputError(f"{out}: holds the input {path}; choose another name for the store")
    entries = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    entries -= {name for name in entries if name.startswith(".partial-") and name.endswith(tuple(OURS))}
    if entries - {".lock"} and not (out / REQUEST).is_file() and not _was_finished(out):
        raise InputError(
            f"{out}: is not a store made here (no {REQUEST}), so it is kept; choose another name, or remove the folder "
            "if it is what is left of a store"
        )
    if foreign := sorted(entries - OURS):
        raise InputError(f"{out}: holds {foreign[0]}, which was not written with it; move that away first")


def check_request(out: Path, request: dict[str, Any]) -> None:
    """Raise InputError where ``out`` is a store of another request."""
    if not (out / "header.json").is_file():
        return
    if not (old := read_request(out)):
        raise InputError(f"{out}: its {REQUEST} is missing or damaged; pass --overwrite to make the store again")
    if different := differences(old, request):
        more = f"; and {len(different) - SAID} more" if len(different) > SAID else ""
        raise InputError(
            f"{out}: is a store of another request: {'; '.join(different[:SAID])}{more}; choose another name or pass "
            "--overwrite"
        )


def _was_finished(out: Path) -> bool:
    """Whether a store was committed there, by its list, whatever was lost since."""
    try:
        return (out / "header.json").is_file() and REQUEST in listed(out)
    except InputError:
        return False


def is_there(out: Path, request: dict[str, Any]) -> bool:
    """Whether ``out`` is the store of ``request``, whole."""
    return (
        (out / "header.json").is_file() and not differences(read_request(out), request) and folder_damage(out) is None
    )


def read_request(out: Path) -> dict[str, Any]:
    """What a store was asked for; nothing where that cannot be read."""
    try:
        request = json.loads((out / REQUEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[str]:
    """Where two requests differ, a phrase each."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = ({str(i): item for i, item in enumerate(items)} for items in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*new, *(key for key in old if key not in new)]
        return [line for key in keys for line in differences(old.get(key), new.get(key), (*path, str(key)))]
    if old == new:
        return []
    match path:
        case "spec", *keys:
            return [f"{'.'.join(keys)} was {_short(old)}, asked is {_short(new)}"]
        case "versions", what:
            return [f"its {what} are of version {_short(old)}, these of {_short(new)}"]
        case "inputs", file:
            return [f"the input {file} {'is new' if old is None else 'is gone' if new is None else 'changed'}"]
    return [f"the {path[0].replace('_', ' ') if path else 'request'} changed"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
