"""The tokens of a shard as one array, whatever holds them: mapped into memory, or encoded when read."""

import json
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Protocol

import h5py
import numpy as np

from seedbed.data.document import Encoded, parse_sequence
from seedbed.data.encode import Encoder
from seedbed.data.layout import AGAIN, PLACE, TRAINED, little, read_array
from seedbed.errors import InputError

KEPT_TOKENS = 1 << 24  # that the lazy readers of a store remember: about 80 MB


class Tokens(Protocol):
    def read(self, start: int, stop: int) -> Encoded:
        """Ids [start, stop) of the shard, and which of them are predicted (None: all)."""
        ...


class ArrayTokens:
    """Tokens that lie in arrays: ids [n], trained [n] or None."""

    def __init__(self, ids: np.ndarray, trained: np.ndarray | None):
        self._ids, self._trained = ids, trained

    def read(self, start: int, stop: int) -> Encoded:
        return Encoded(self._ids[start:stop], None if self._trained is None else self._trained[start:stop])


class Remembered:
    """Encoded sequences, up to KEPT_TOKENS tokens of those that were read last; of all shards and threads."""

    def __init__(self):
        self._found: OrderedDict[tuple[Path, int], Encoded] = OrderedDict()
        self._tokens = 0
        self._lock = Lock()

    def get(self, key: tuple[Path, int]) -> Encoded | None:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: tuple[Path, int], encoded: Encoded) -> None:
        with self._lock:
            if key not in self._found:  # another thread may have been faster
                self._found[key] = encoded
                self._tokens += len(encoded.ids)
            while self._tokens > KEPT_TOKENS:
                self._tokens -= len(self._found.popitem(last=False)[1].ids)


class LazyTokens:
    """Sequences that are encoded when they are read, whole: a part of a text has no tokens of its own."""

    def __init__(self, folder: Path, encoder: Encoder, remembered: Remembered):
        self._folder = folder
        self._bytes = read_array(folder / "documents.jsonl", np.dtype("u1"))
        self._lines = np.append(read_array(folder / "lines.bin", PLACE), len(self._bytes))  # [n + 1]
        self._starts = np.array(read_array(folder / "starts.bin", PLACE))  # [n]; the first may lie before the shard
        self._encoder = encoder
        self._remembered = remembered

    def read(self, start: int, stop: int) -> Encoded:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        found = []
        for line in range(first, last):
            begin, whole = int(self._starts[line]), self._document(line)
            span = slice(max(start - begin, 0), stop - begin)
            trained = np.ones(len(whole.ids), bool) if whole.trained is None else whole.trained
            found.append((whole.ids[span], trained[span]))
        return Encoded(*map(np.concatenate, zip(*found, strict=True)))

    def _document(self, line: int) -> Encoded:
        found = self._remembered.get((self._folder, line))
        if found is None:
            found = self._encode(line)
            self._remembered.put((self._folder, line), found)
        return found

    def _encode(self, line: int) -> Encoded:
        where = f"{self._folder}: document {line + 1}"
        try:
            sequence = parse_sequence(json.loads(self._bytes[self._lines[line] : self._lines[line + 1]].tobytes()))
        except (ValueError, TypeError, LookupError):
            raise InputError(f"{where}: damaged; {AGAIN}") from None
        return self._encoder.encode([sequence], [where])[0]


def mapped(folder: Path, dtype: str) -> ArrayTokens:
    """Flat files, memory-mapped: the system's page cache holds what is read, once for all processes (S1, storage)."""
    trained = folder / "trained.bin"
    return ArrayTokens(
        read_array(folder / "tokens.bin", little(dtype)), read_array(trained, TRAINED) if trained.is_file() else None
    )


def shared(folder: Path) -> ArrayTokens:
    """An HDF5 file whose values lie in one run each, memory-mapped: one copy in memory serves all processes of a
    machine, also ranks that were started apart (S1, storage)."""
    try:
        with h5py.File(folder / "tokens.h5", "r") as file:
            return ArrayTokens(_values(file, "tokens"), _values(file, "trained") if "trained" in file else None)
    except (OSError, RuntimeError, LookupError, ValueError) as error:  # whatever the library stumbles over
        raise InputError(f"{folder / 'tokens.h5'}: damaged ({error}); {AGAIN}") from None


def _values(file: h5py.File, name: str) -> np.ndarray:
    dataset = file[name]
    assert isinstance(dataset, h5py.Dataset)
    if (place := dataset.id.get_offset()) is None:
        raise ValueError(f"{name} is compressed or in chunks")
    return np.asarray(np.memmap(file.filename, dataset.dtype, "r", place, dataset.shape))
