"""Files and folders that appear whole or not at all.

A file is written beside its target, flushed to the disk and renamed. A folder is built aside in the same
way; its last file is ``commit.json``, which lists every other file with its size and SHA-256, so that a reader
can tell a whole folder from a damaged one without trusting its name.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seedbed.errors import InputError

COMMIT = "commit.json"
_ASIDE = ".partial-"


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _target(path: str | Path) -> Path:
    """The place that ``path`` means: links followed, also one that points at nothing yet, and ``..`` taken out."""
    try:
        return Path(path).resolve()
    except RuntimeError:  # how pathlib reports it
        raise InputError(f"{path}: a link that leads back to itself; name another place") from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the system that names no file (a full disk, met while writing) the name ``path``."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _make_parent(path: Path) -> None:
    """Make the folder that ``path`` stands in, and its name safe on the disk."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        sync(path.parent.parent)


def _aside(path: Path, what: str = "") -> Path:
    """Where this process builds what will stand at ``path``, or moves what stood there (``what``: "old-", "gone-").

    The machine is in the name: others may share the disk.
    """
    return path.with_name(f"{_ASIDE}{socket.gethostname()}-{os.getpid()}-{what}{path.name}")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _clear_leftovers(path: Path) -> None:
    """Remove what writers of ``path`` that died left beside it; bring back a folder that one had moved away.

    The name holds the writer's machine and process id: a living other process is left alone, and so are those of other
    machines, of which nothing is known here.
    """
    here = re.escape(f"{_ASIDE}{socket.gethostname()}-")
    pattern = re.compile(here + r"([0-9]+)-(old-)?" + re.escape(path.name))
    for leftover in sorted(path.parent.glob(f"{_ASIDE}*")):
        match = pattern.fullmatch(leftover.name)
        if match is None or (int(match[1]) != os.getpid() and _alive(int(match[1]))):
            continue
        if match[2] and not path.exists():  # killed between the two renames of a replacement
            leftover.rename(path)
        elif leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove everything that writers left unfinished in ``folder`` or below; bring back a folder that one had moved
    away for a new one that never came. The caller holds the folder's lock. Warns of what cannot be removed.
    """
    moved = re.compile(re.escape(_ASIDE) + r".+-[0-9]+-old-(.+)")
    for leftover in sorted(folder.rglob(f"{_ASIDE}*"), reverse=True):  # what lies in another one goes before it
        match = moved.fullmatch(leftover.name)
        if match and not (old := leftover.with_name(match[1])).exists():
            leftover.rename(old)
        else:
            _discard(leftover)


def remove_folder(folder: Path) -> None:
    """Remove a folder: nothing stands at its name from the first moment, also when the removal is cut short. Warns of
    files that stay, aside."""
    aside = _aside(folder, "gone-")
    folder.rename(aside)
    _discard(aside)


def _discard(path: Path) -> None:
    """Remove what is of no use to anybody. Where that fails (a file that is open elsewhere, on NFS) nothing is lost."""
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        # as from one place, so that it is shown once
        warnings.warn(f"{path}: is no longer needed, but cannot be removed ({error.strerror})", stacklevel=1)


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content``; a crash leaves the old file or the new one, never a mix.

    Where ``path`` is a link, what it points at is replaced.
    """
    path = _target(path)
    _make_parent(path)
    _clear_leftovers(path)
    aside = _aside(path)
    try:
        with naming(path):
            aside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
            sync(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(path: Path) -> tuple[int, str]:
    """(bytes, SHA-256) of a file, as a committed folder lists it."""
    return path.stat().st_size, sha256(path)


@contextmanager
def atomic_folder(
    path: str | Path, known: Mapping[str, tuple[int, str]] | None = None, listing: bool = True
) -> Iterator[Path]:
    """Build the folder ``path`` aside and put it in place, committed, when the ``with`` block ends without error.

    ``known``, looked at then, has fingerprints of files by their names in the folder, which are not read again. Without
    ``listing`` the folder is flushed and put in place with no list of its files: one that will change later.
    An existing folder at ``path`` is replaced at that moment. A writer killed between the two renames of a
    replacement leaves the old folder aside; the next writer of ``path`` brings it back. Left-overs of writers that
    died are removed. Where ``path`` is a link, what it points at is replaced. Callers that did not make the folder at
    ``path`` themselves ask `require_replaceable` first.
    """
    path = _target(path)
    _make_parent(path)
    _clear_leftovers(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name a folder, or move the file away")
    aside = _aside(path)
    aside.mkdir()
    try:
        with naming(path):
            yield aside
            for entry in sorted(aside.rglob("*")):
                sync(entry)
            if listing:
                commit(aside, known=known)
        if path.exists():
            old = _aside(path, "old-")
            try:
                path.rename(old)
                aside.rename(path)
            finally:
                if not path.exists():
                    old.rename(path)
            sync(path.parent)
            _discard(old)
        else:
            aside.rename(path)
            sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def commit(folder: Path, leave_out: Collection[str] = (), known: Mapping[str, tuple[int, str]] | None = None) -> None:
    """Write the list of the files in ``folder``, which makes it a whole one; ``leave_out`` are entries of the folder.

    What lies in a committed folder inside is listed as it is listed there, and what is ``known`` (fingerprints by
    name) as that says, without being read again.
    """
    listing = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in (known or {}).items()}
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder).as_posix()
        if entry.is_file() and name not in listing and name != COMMIT and name.partition("/")[0] not in leave_out:
            if (entry.parent / COMMIT).is_file() and entry.parent != folder:
                inside = entry.parent.relative_to(folder).as_posix()
                for file, (size, digest) in listed(entry.parent).items():
                    listing[f"{inside}/{file}"] = {"bytes": size, "sha256": digest}
            if name not in listing:
                size, digest = fingerprint(entry)
                listing[name] = {"bytes": size, "sha256": digest}
    content = {"format_version": 1, "files": {name: listing[name] for name in sorted(listing)}}
    write_atomic(folder / COMMIT, json.dumps(content, indent=1))


def listed(path: Path) -> dict[str, tuple[int, str]]:
    """(bytes, SHA-256) of each file of a committed folder. Raises InputError that says what is wrong with the list."""
    try:
        listing = json.loads((path / COMMIT).read_text(encoding="utf-8"))["files"]
        return {str(name): (entry["bytes"], entry["sha256"]) for name, entry in listing.items()}
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{COMMIT} is missing (the folder was never finished)") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{COMMIT} is damaged") from None


def folder_damage(
    path: str | Path, hashed: Callable[[str], bool] = lambda _: True, only: Collection[str] | None = None
) -> str | None:
    """Say what is wrong with a committed folder, or None when every listed file is there, unchanged.

    ``hashed`` says by its name whether a file's content is read and compared; of the others the size is. ``only`` names
    the files that are looked at.
    """
    return next(damages(path, hashed, only), None)


def damages(
    path: str | Path, hashed: Callable[[str], bool] = lambda _: True, only: Collection[str] | None = None
) -> Iterator[str]:
    """All that is wrong with a committed folder, a line for each file; options as for `folder_damage`."""
    path = Path(path)
    try:
        expected = listed(path)
    except InputError as error:
        yield str(error)
        return
    for name, (size, digest) in expected.items():
        file = path / name
        if only is not None and name not in only:
            continue
        if not file.is_file():
            yield f"{name} is missing"
        elif file.stat().st_size != size:
            yield f"{name} has {file.stat().st_size} bytes instead of {size}"
        elif hashed(name) and sha256(file) != digest:
            yield f"the content of {name} changed (SHA-256 differs)"


def require_replaceable(path: str | Path, marker: str) -> None:
    """Raise InputError unless writing the folder ``path`` can destroy nothing but an earlier output of the same kind.

    That is: nothing is there, or an empty folder, or a committed folder whose list has the file ``marker`` and that
    holds no file beyond the list. Damage to its files does not matter. A folder of ours has its name only once it is
    committed, so anything else was put there by somebody.
    """
    path = _target(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name a folder, or move the file away")
    if not path.exists() or not any(path.iterdir()):
        return
    try:
        listing = listed(path)
    except InputError:
        listing = {}
    if marker not in listing:
        raise InputError(f"{path}: is not a folder made here with a {marker}, so it is kept; choose another name")
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if name not in listing and name != COMMIT and (file.is_symlink() or not file.is_dir()):
            raise InputError(f"{path}: holds {name}, which was not written with it; move that away first")
