"""The last stage: bins of the plan, copied from the encoded pieces into a shard of the store."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import h5py
import numpy as np

from seedbed.data.layout import BIN, ENDS, MASKED, PLACE, SEGMENT, TRAINED, little, read_array
from seedbed.data.plan import ranges

BLOCK_TOKENS = 1 << 24  # in memory at once; each block may open every piece, so not too few


class Planned(NamedTuple):
    """The segments of bins [low, high) of a stream, as the plan has them."""

    piece: np.ndarray  # [s]
    start: np.ndarray
    length: np.ndarray
    position: np.ndarray
    rest: np.ndarray
    group: np.ndarray
    bins: np.ndarray  # [bins + 1] first segment of each, from 0


def read_plan(plan: Path, stream: str, low: int, high: int) -> Planned:
    columns = {name: np.load(plan / f"{stream}.{name}.npy", mmap_mode="r") for name in Planned._fields}
    bins = np.array(columns.pop("bins")[low : high + 1])
    segments = {name: np.array(column[bins[0] : bins[-1]]) for name, column in columns.items()}
    return Planned(**segments, bins=bins - bins[0])


def cut_into_shards(plan: Path, stream: str, seq_len: int, shard_tokens: int) -> list[tuple[int, int]]:
    """Ranges of bins, each of about ``shard_tokens`` tokens' room: as many whole bins as fit, one at least."""
    bins = len(np.load(plan / f"{stream}.bins.npy", mmap_mode="r")) - 1
    step = max(shard_tokens // seq_len, 1)
    return [(low, min(low + step, bins)) for low in range(0, bins, step)]


def write_shard(
    folder: Path,
    plan: Path,
    stream: str,
    low: int,
    high: int,
    encoded: Sequence[Path],
    storage: str,
    dtype: str,
    goes_on: bool,
    texts: Sequence[tuple[Path, str]],
) -> dict[str, int]:
    """Bins [low, high) of a stream -> the files of a shard (see layout).

    ``encoded`` are the folders of all pieces. With ``goes_on`` a document that does not end with its segment goes on
    in another bin, and the segment's last token predicts its next one; otherwise the rest was cut off. ``texts`` are
    the cleaned pieces (folder, name), which storage jsonl copies instead of tokens.
    """
    output = stream.partition(".")[2]
    planned = read_plan(plan, stream, low, high)
    sources = _Pieces([place / output for place in encoded], dtype)
    counts = _write_index(folder, planned, sources, goes_on)
    if storage == "jsonl":
        _copy_documents(folder, planned, encoded, texts, output)
    else:
        _copy_tokens(folder, planned, sources, storage, dtype)
    return counts


class _Piece(NamedTuple):
    """The encoded sequences of one output of one piece, memory-mapped."""

    ids: np.ndarray  # [tokens]
    trained: np.ndarray | None  # [tokens] bool


class _Pieces:
    """All pieces, each open only while it is read: a process may have about a thousand files open."""

    def __init__(self, stems: Sequence[Path], dtype: str):
        self._stems, self.dtype = stems, little(dtype)
        self.masked = self._trained(0).is_file()

    def __getitem__(self, number: int) -> _Piece:
        ids = read_array(Path(f"{self._stems[number]}.ids.bin"), self.dtype)
        return _Piece(ids, read_array(self._trained(number), TRAINED) if self.masked else None)

    def _trained(self, number: int) -> Path:
        return Path(f"{self._stems[number]}.trained.bin")


def _write_index(folder: Path, planned: Planned, sources: _Pieces, goes_on: bool) -> dict[str, int]:
    ends = np.cumsum(planned.length)
    starts = ends - planned.length  # [s] in the shard
    tokens = int(ends[-1])
    bins = np.zeros(len(planned.bins), BIN)
    bins["segment"] = planned.bins
    bins["token"] = np.append(starts, tokens)[planned.bins]
    segments = np.zeros(len(starts), SEGMENT)
    segments["offset"] = starts - np.repeat(bins["token"][:-1], np.diff(planned.bins))
    segments["position"] = planned.position
    segments["group"] = planned.group
    segments["next"] = ENDS
    predicted = np.zeros(len(starts), np.int64)  # [s] targets of each segment
    for piece, rows in _by_piece(planned.piece):
        source = sources[piece]
        begin, end = planned.start[rows], planned.start[rows] + planned.length[rows]
        following = rows[planned.rest[rows] > 0]
        if goes_on and len(following):
            at = planned.start[following] + planned.length[following]
            target = source.ids[at].astype(np.int32)
            learned = np.ones(len(at), bool) if source.trained is None else source.trained[at]
            segments["next"][following] = np.where(learned, target, MASKED)
            predicted[following] += learned
        if source.trained is None:
            predicted[rows] += planned.length[rows] - 1
        else:
            predicted[rows] += [int(source.trained[a + 1 : b].sum()) for a, b in zip(begin, end, strict=True)]
    if not goes_on:
        segments["cut"] = planned.rest
    bins.tofile(folder / "bins.bin")
    segments.tofile(folder / "segments.bin")
    targets = np.add.reduceat(predicted, planned.bins[:-1])  # [bins]
    return {
        "bins": len(bins) - 1,
        "segments": len(segments),
        "tokens": tokens,
        "predicted": int(predicted.sum()),
        "bins_without_targets": int(np.count_nonzero(targets == 0)),
    }


def _by_piece(piece: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(piece, the rows that come from it, ascending)."""
    order = np.argsort(piece, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(piece[order])) + 1):
        if len(rows):
            yield int(piece[rows[0]]), rows


def _copy_tokens(folder: Path, planned: Planned, sources: _Pieces, storage: str, dtype: str) -> None:
    """The tokens in their order, a block at a time: best-fit bins take from every piece, and a whole shard in memory
    would make it as large as a specification asks."""
    types = {"tokens": little(dtype)} | ({"trained": TRAINED} if sources.masked else {})
    size = int(planned.length.sum())
    places = _datasets(folder / "tokens.h5", size, types) if storage == "hdf5" else None
    with ExitStack() as stack:
        files = {name: stack.enter_context(_at(folder, name, places)) for name in types}
        for block in _blocks(planned.length):
            length, start = planned.length[block], planned.start[block]
            into = np.cumsum(length) - length
            buffers = [np.empty(int(length.sum()), dtype) for dtype in types.values()]
            for number, rows in _by_piece(planned.piece[block]):
                there, here = ranges(start[rows], length[rows]), ranges(into[rows], length[rows])
                arrays = [array for array in sources[number] if array is not None]
                for buffer, array in zip(buffers, arrays, strict=True):
                    buffer[here] = array[there]
            for file, buffer in zip(files.values(), buffers, strict=True):
                file.write(buffer.data)


def _blocks(length: np.ndarray) -> Iterator[slice]:
    """Runs of segments of about BLOCK_TOKENS tokens."""
    ends = np.cumsum(length)
    edges = np.searchsorted(ends, np.arange(BLOCK_TOKENS, int(ends[-1]), BLOCK_TOKENS), side="right")
    edges = np.unique([0, *edges, len(length)])
    return map(slice, edges[:-1].tolist(), edges[1:].tolist())


def _at(folder: Path, name: str, places: dict[str, int] | None) -> BinaryIO:
    """The file that takes the values ``name``, opened where they begin."""
    if places is None:
        return open(folder / f"{name}.bin", "wb")
    file = open(folder / "tokens.h5", "r+b")  # noqa: SIM115
    file.seek(places[name])
    return file


def _datasets(file: Path, size: int, types: dict[str, np.dtype]) -> dict[str, int]:
    """A new HDF5 file with empty datasets [size]: at which byte the values of each begin. They are written there, not
    through the library, which ends the process where the disk is full."""
    file.write_bytes(bytes(1 << 20))  # raises OSError where there is no room for what the library writes
    places = {}
    with h5py.File(file, "w", libver="latest") as out:
        for name, dtype in types.items():
            dataset = out.create_dataset(name, (size,), dtype)
            dataset[0] = 0  # the first value gives it a place
            places[name] = dataset.id.get_offset()
    return places


def _copy_documents(
    folder: Path, planned: Planned, encoded: Sequence[Path], texts: Sequence[tuple[Path, str]], output: str
) -> None:
    """The sequences that the segments are of, in order, once each: storage jsonl packs one document after another."""
    opens = np.flatnonzero((planned.position == 0) | (np.arange(len(planned.piece)) == 0))
    starts = (np.cumsum(planned.length) - planned.length - planned.position)[opens]
    lines: list[int] = []
    with open(folder / "documents.jsonl", "wb") as out:
        for piece, segments in groupby(opens.tolist(), key=lambda segment: int(planned.piece[segment])):
            place, name = texts[piece]
            offsets = np.load(place / f"table-{name}.npy")["offset"][np.load(encoded[piece] / "kept.npy")]
            begins = np.load(encoded[piece] / f"{output}.starts.npy")
            with open(place / f"documents-{name}.jsonl", "rb") as documents:
                for segment in segments:
                    begin = planned.start[segment] - planned.position[segment]
                    documents.seek(int(offsets[int(np.searchsorted(begins, begin, side="right")) - 1]))
                    sequence = json.loads(documents.readline())[5][output][0]
                    lines.append(out.tell())
                    out.write(json.dumps(sequence, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n")
    np.array(lines, PLACE).tofile(folder / "lines.bin")
    starts.astype(PLACE).tofile(folder / "starts.bin")


def write_records(
    folder: Path, plan: Path, split: str, pieces: Sequence[Path], outputs: Sequence[str], numbers: Sequence[str]
) -> dict[str, Any]:
    """What a split of several outputs needs beside their tokens: `NAME.items.bin` [records + 1], where each record's
    sequences or numbers begin, and `NAME.values.bin`, the numbers (float64)."""
    records = np.load(plan / f"{split}.records.npy")
    for name in [*outputs, *numbers]:
        counts = np.concatenate([np.diff(np.load(piece / f"{name}.items.npy")) for piece in pieces])  # [corpus]
        np.append(0, np.cumsum(counts[records])).astype(PLACE).tofile(folder / f"{name}.items.bin")
        if name in numbers:
            values = np.concatenate([np.load(piece / f"{name}.values.npy") for piece in pieces])
            begins = np.cumsum(counts) - counts
            values[ranges(begins[records], counts[records])].astype("<f8").tofile(folder / f"{name}.values.bin")
    return {}
