"""Which files a specification reads, in which order: local or any address that fsspec opens."""

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import fsspec
from fsspec import AbstractFileSystem
from fsspec.core import has_magic
from fsspec.implementations.local import LocalFileSystem

from seedbed.data.place import REQUEST
from seedbed.data.sections import Source
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT

Format = Literal["jsonl", "parquet", "text", "dataset"]

_SUFFIXES: dict[Format, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet",),
    "text": (".txt", ".text", ".md", ".rst"),
}
_KNOWN = (
    ", ".join(suffix for format in ("jsonl", "text") for suffix in _SUFFIXES[format])
    + " (each also .gz and .zst), .parquet, and folders that Dataset.save_to_disk wrote"
)
_DATASET = {"dataset_info.json", "state.json"}  # what the folder of one `datasets` split always holds
_OURS = {COMMIT: {"format_version", "files"}, REQUEST: {"format_version", "spec", "inputs"}}  # files and their keys


class Part(NamedTuple):
    """An equal part of a file: lines of JSONL that begin in its bytes, row groups of Parquet, rows of a dataset."""

    number: int = 0
    of: int = 1
    line: int = 1
    """The number of the first line of a part of JSONL."""

    def bounds(self, total: int) -> tuple[int, int]:
        """Where the part begins and where it ends."""
        return total * self.number // self.of, total * (self.number + 1) // self.of


class InputFile(NamedTuple):
    """A file to read, or the folder of a dataset; or a part of either."""

    path: str
    """As it was given, with what a folder or a pattern leaves open: what fsspec opens."""
    source: Source
    format: Format
    size: int
    """Bytes of the whole file; 0 where a server does not tell."""
    fingerprint: str
    """Changes when the content does: name, size, and time of change or checksum."""
    part: Part = Part()
    """What is read of it; all, unless something else is said."""


class _Found(NamedTuple):
    name: str
    """Path within the file system."""
    format: Format


def list_inputs(sources: Sequence[Source]) -> list[InputFile]:
    """All files of the sources: sources in their order, the files of each in natural order (shard 2 before 10).

    Of what a folder holds or a pattern matches, names that begin with a dot are passed over, and what lies in a folder
    that was written here: a store, also one in the making, a tokenizer. So a store may stand among its texts. What is
    named itself is read, whatever it is. Raises InputError, before anything is read, for a source that matches nothing,
    a file of unknown kind, one that is given twice (also through a link), one that may not be read, and a library that
    is missing.
    """
    files: list[InputFile] = []
    seen = set()
    for source in sources:
        fs, root = file_system(source)
        try:
            for found in _find(fs, root, source):
                same = os.path.realpath(found.name) if _is_local(fs) else (fs, found.name)
                file = _input_file(fs, root, source, found)
                if same in seen:
                    raise InputError(f"{file.path}: given twice; its documents would be read twice")
                seen.add(same)
                files.append(file)
        except OSError as error:
            raise InputError(f"{source.path}: cannot be read: {error.strerror or error}") from None
    if any(file.format == "dataset" for file in files) and importlib.util.find_spec("datasets") is None:
        raise InputError("reading a saved dataset needs the library datasets: pip install 'seedbed[hf]'")
    return files


def file_system(source: Source, path: str | None = None) -> tuple[AbstractFileSystem, str]:
    """The file system of ``path``, an address of ``source`` (default: its own), and the path within it."""
    path = source.path if path is None else path
    try:
        return fsspec.url_to_fs(path, **source.options)
    except ImportError as error:  # fsspec names the library: "Install s3fs to access S3"
        raise InputError(f"{path}: a library is missing: {error} (pip install)") from None
    except (OSError, TypeError, ValueError) as error:  # an archive that is not there, unknown options or protocol
        raise InputError(f"{path}: cannot be opened: {error}") from None


def name_in_source(file: InputFile) -> str:
    """Path of a file inside the folder that its source names; of a file that is named itself, its name."""
    name = file_system(file.source, file.path)[1]
    folder = _fixed_part(file_system(file.source)[1])
    return PurePosixPath(name).name if name == folder else name.removeprefix(folder).lstrip("/")


def default_domain(file: InputFile) -> str:
    """Domain of records that have none: the file's name up to the first dot; of texts, the name of their folder."""
    path = _fixed_part(file.source.path) if file.format == "text" else file.path
    return PurePosixPath(path).name.split(".")[0] or "text"


def natural_key(path: str) -> tuple[list[str | int], str]:
    """Sorts paths by name with runs of digits as numbers, whatever order a file system lists them in."""
    # split with a group alternates text and digits, so that equal positions hold equal types
    pieces = re.split(r"([0-9]+)", path)
    return [int(piece) if i % 2 else piece for i, piece in enumerate(pieces)], path


def _find(fs: AbstractFileSystem, root: str, source: Source) -> list[_Found]:
    """The files of a source, in natural order."""
    try:
        info = fs.info(root)
    except FileNotFoundError:
        if not has_magic(root):
            raise InputError(f"{source.path}: no such file or folder") from None
        found = list(_matched(fs, root, source))
        if not found:
            raise InputError(f"{source.path}: no file matches; write a pattern such as folder/**/*.jsonl") from None
    else:
        found = list(_folder(fs, root, source)) if info["type"] == "directory" else [_named(fs, root, source)]
        if not found:
            kind = "known kind" if source.format == "auto" else f"kind {source.format}"
            raise InputError(f"{source.path}: no file of a {kind} in this folder; known are {_KNOWN}")
    kinds = sorted({file.format for file in found})
    if source.format == "auto" and len(kinds) > 1:
        raise InputError(f"{source.path}: holds several kinds of files ({', '.join(kinds)}); set the source's format")
    return sorted(found, key=lambda file: natural_key(file.name))


def _matched(fs: AbstractFileSystem, root: str, source: Source) -> Iterator[_Found]:
    """What matches the pattern ``root``: files and datasets; other folders stand for nothing."""
    fixed, is_ours = _fixed_part(root), cache(partial(_is_ours, fs))
    for name in map(str, fs.glob(root)):
        below = [str(folder) for folder in PurePosixPath(name).parents if len(str(folder)) > len(fixed)]
        if _is_hidden(name, fixed) or any(map(is_ours, below)):
            continue
        if not fs.isdir(name):
            yield _named(fs, name, source)
        elif _is_dataset(fs, name, fs.ls(name, detail=True)):
            yield _Found(name, "dataset")


def _named(fs: AbstractFileSystem, name: str, source: Source) -> _Found:
    """A file that a source names, itself or by a pattern or its folder."""
    if _is_local(fs):
        _check_local(name)
    format = _format_of(name) if source.format == "auto" else source.format
    if format == "dataset":
        raise InputError(f"{name}: a file; format dataset is for a folder that Dataset.save_to_disk wrote")
    if format is None:
        raise InputError(f"{name}: unknown kind of file; known are {_KNOWN}. Set the source's format if it is one")
    return _Found(name, format)


def _folder(fs: AbstractFileSystem, folder: str, source: Source) -> Iterator[_Found]:
    """The files of the wanted kind, or of any known kind, in a folder and those below it."""
    entries = fs.ls(folder, detail=True)
    if _is_dataset(fs, folder, entries):
        if source.format in ("auto", "dataset"):
            yield _Found(folder, "dataset")
        return
    for entry in entries:
        name = entry["name"].rstrip("/")
        if name == folder or _is_hidden(name, folder):
            continue
        if entry["type"] == "directory":
            if not _is_ours(fs, name):
                yield from _folder(fs, name, source)
        elif _is_local(fs) and os.path.isdir(name):  # a link: following it could lead around in circles
            raise InputError(f"{name}: a link to a folder; name that folder as a source of its own")
        elif (format := _format_of(name)) is not None and source.format in ("auto", format):
            yield _named(fs, name, source)


def _is_dataset(fs: AbstractFileSystem, folder: str, entries: list[dict[str, Any]]) -> bool:
    """Whether `Dataset.save_to_disk` wrote the folder with these entries. Raises InputError for several splits."""
    names = {PurePosixPath(entry["name"]).name for entry in entries}
    if "dataset_dict.json" in names:
        splits = sorted(PurePosixPath(entry["name"]).name for entry in entries if entry["type"] == "directory")
        raise InputError(f"{folder}: holds several splits; name one of these folders in it: {', '.join(splits)}")
    return names >= _DATASET


def _is_ours(fs: AbstractFileSystem, folder: str) -> bool:
    """Whether Seedbed wrote the folder, or is writing a store there."""
    for name, keys in _OURS.items():
        if fs.isfile(f"{folder}/{name}"):
            try:
                content = json.loads(fs.cat_file(f"{folder}/{name}"))
            except (ValueError, RecursionError):  # somebody else's file of that name
                continue
            if isinstance(content, dict) and keys <= content.keys():
                return True
    return False


def _format_of(name: str) -> Format | None:
    name = name.lower()
    bare = name.removesuffix(".gz").removesuffix(".zst")
    for format, suffixes in _SUFFIXES.items():
        if bare.endswith(suffixes) and (bare == name or format != "parquet"):
            return format
    return None


def _is_hidden(name: str, folder: str) -> bool:
    """Whether the file, or a folder between ``folder`` and it, has a name that begins with a dot."""
    return any(part.startswith(".") for part in name.removeprefix(folder).split("/"))


def _is_local(fs: AbstractFileSystem) -> bool:
    return isinstance(fs, LocalFileSystem)


def _check_local(name: str) -> None:
    if not os.path.isfile(name):
        problem = "not a regular file; write its content into one" if os.path.exists(name) else "a link to nothing"
        raise InputError(f"{name}: {problem}")
    if not os.access(name, os.R_OK):
        raise InputError(f"{name}: may not be read; ask for permission to")


def _fixed_part(name: str) -> str:
    """The folders of a pattern before the first wildcard; of any other path, all of it."""
    parts = name.split("/")
    return "/".join(parts[: next((i for i, part in enumerate(parts) if has_magic(part)), len(parts))])


def _input_file(fs: AbstractFileSystem, root: str, source: Source, found: _Found) -> InputFile:
    """``found`` as an address like the one of its source, so that messages and ids do not tell where a checkout is."""
    if _is_local(fs):
        given = source.path
        path = found.name if given.startswith(("/", "~")) or "://" in given else os.path.relpath(found.name)
    elif root and root in source.path:
        before, _, after = source.path.partition(root)
        path = before + found.name + after.removeprefix("/")
    else:
        path = fs.unstrip_protocol(found.name)
    names = sorted(fs.find(found.name)) if found.format == "dataset" else [found.name]
    try:
        digest = hashlib.blake2b(path.encode("utf-8"), digest_size=16)
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown}: the name is not UTF-8; rename it") from None
    size = 0
    for name in names:
        info = fs.info(name)
        state = f"{os.stat(name).st_mtime_ns}" if _is_local(fs) else f"{fs.checksum(name)}"
        size += info["size"] or 0  # unknown for some servers
        digest.update(f"\0{name.removeprefix(found.name)} {info['size']} {state}".encode("utf-8", "surrogateescape"))
    return InputFile(path, source, found.format, size, digest.hexdigest())
