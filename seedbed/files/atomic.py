"""Files and folders that appear whole or not at all.

A file is written beside its target, flushed to the disk and renamed. A folder is built aside in the same
way; its last file is ``commit.json``, which lists every other file with its size and SHA-256, so that a reader
can tell a whole folder from a damaged one without trusting its name.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT = "commit.json"
_ASIDE = ".partial-"


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content``; a crash leaves the old file or the new one, never a mix."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{_ASIDE}{os.getpid()}-{path.name}")
    try:
        aside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        sync(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Build the folder ``path`` aside and put it in place, committed, when the ``with`` block ends without error.

    An existing folder at ``path`` is replaced at that moment. Left-overs of writers that died are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{_ASIDE}*-{path.name}"):
        shutil.rmtree(leftover, ignore_errors=True)
    aside = path.with_name(f"{_ASIDE}{os.getpid()}-{path.name}")
    aside.mkdir()
    try:
        yield aside
        files = sorted(file for file in aside.rglob("*") if file.is_file())
        listing = {}
        for file in files:
            sync(file)
            listing[file.relative_to(aside).as_posix()] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
        write_atomic(aside / COMMIT, json.dumps({"format_version": 1, "files": listing}, indent=1))
        if path.exists():
            old = path.with_name(f"{_ASIDE}{os.getpid()}-old-{path.name}")
            os.rename(path, old)
            os.rename(aside, path)
            shutil.rmtree(old)
        else:
            os.rename(aside, path)
        sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def folder_damage(path: str | Path) -> str | None:
    """Say what is wrong with a committed folder, or None when every listed file is there, unchanged."""
    path = Path(path)
    try:
        listing = json.loads((path / COMMIT).read_text(encoding="utf-8"))["files"]
    except FileNotFoundError:
        return f"{COMMIT} is missing (the folder was never finished)"
    except (json.JSONDecodeError, KeyError, UnicodeDecodeError):
        return f"{COMMIT} is damaged"
    for name, entry in listing.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["bytes"]:
            return f"{name} has {file.stat().st_size} bytes instead of {entry['bytes']}"
        if sha256(file) != entry["sha256"]:
            return f"the content of {name} changed (SHA-256 differs)"
    return None
