"""A flat array of numbers spread over files: written once, front to back, and read through memory maps."""

import hashlib
from pathlib import Path
from typing import Any, Self

import numpy as np

from seedbed.errors import InputError


class ShardWriter:
    """Append numbers; a new file starts after ``limit`` numbers. A context manager: leaving it closes the last file."""

    def __init__(self, folder: Path, stem: str, dtype: str, limit: int):
        self.listing: list[dict[str, Any]] = []
        """One entry a finished file: name, bytes, sha256."""
        self.length = 0
        self._folder, self._stem, self._dtype, self._limit = folder, stem, np.dtype(dtype), limit
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, numbers: np.ndarray) -> None:
        while len(numbers):
            if self._room == 0:
                self._close()
                self._open()
            piece, numbers = numbers[: self._room], numbers[self._room :]
            raw = np.ascontiguousarray(piece, dtype=self._dtype).data.cast("B")
            self._file.write(raw)
            self._hash.update(raw)
            self._room -= len(piece)
            self.length += len(piece)

    def _open(self) -> None:
        self._name = f"{self._stem}-{len(self.listing):05d}.bin"
        self._file = open(self._folder / self._name, "wb")  # noqa: SIM115 (closed by _close)
        self._hash = hashlib.sha256()
        self._room = self._limit

    def _close(self) -> None:
        self._file.close()
        written = (self._limit - self._room) * self._dtype.itemsize
        self.listing.append({"name": self._name, "bytes": written, "sha256": self._hash.hexdigest()})


class ShardReader:
    """The files of a listing as one array, memory-mapped; their sizes are checked, their hashes are not.

    What is read must be below ``bound``: a number that is not raises InputError with the file's name.
    """

    def __init__(self, folder: Path, listing: list[dict[str, Any]], dtype: str, bound: int):
        self._files = [folder / entry["name"] for entry in listing]
        self._bound = bound
        self._parts = [_map(folder / entry["name"], entry["bytes"], dtype) for entry in listing]
        self._ends = np.cumsum([len(part) for part in self._parts], dtype=np.int64)  # [files]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Numbers [start, stop), cut at the end of the array; joined where they cross files."""
        stop = min(stop, len(self))
        shard = int(np.searchsorted(self._ends, start, side="right"))
        pieces = []
        while start < stop:
            first = int(self._ends[shard]) - len(self._parts[shard])
            piece = self._parts[shard][start - first : stop - first]
            if len(piece) and int(piece.max()) >= self._bound:
                problem = f"damaged: holds {piece.max()}, where every number is below {self._bound}"
                raise InputError(f"{self._files[shard]}: {problem}; make the store again with `seedbed data prepare`")
            pieces.append(piece)
            start, shard = int(self._ends[shard]), shard + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate([self._parts[0][:0], *pieces])


def _map(file: Path, expected: int, dtype: str) -> np.ndarray:
    size = file.stat().st_size if file.is_file() else None
    if size != expected:
        problem = "is missing" if size is None else f"has {size} bytes instead of {expected}"
        raise InputError(f"{file}: {problem}; make the store again with `seedbed data prepare`")
    if not size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))  # a plain view: slicing a memmap object is slow
