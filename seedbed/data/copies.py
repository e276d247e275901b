"""Which documents are copies of earlier ones: the one stage that looks at all of them together."""

import json
from collections.abc import Sequence
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbed.data.dedup import Removal, alarms, exact_duplicates, near_duplicates
from seedbed.data.document import Document, content, parse
from seedbed.data.progress import spinner
from seedbed.data.sections import Dedup


class PieceOfText(NamedTuple):
    """A piece of cleaned text, wherever it lies."""

    folder: Path
    name: str
    source: str
    """Path of the source that it came from, as the specification has it."""
    documents: int

    def column(self, name: str) -> np.ndarray:
        """A column of its table, [documents]."""
        return np.load(self.folder / f"table-{self.name}.npy", mmap_mode="r")[name].copy()

    def document(self, offset: int) -> Document:
        with open(self.folder / f"documents-{self.name}.jsonl", "rb") as file:
            file.seek(offset)
            return parse(file.readline())


def find_copies(folder: Path, pieces: Sequence[PieceOfText], signed: Sequence[Path], dedup: Dedup) -> dict[str, Any]:
    """Pieces in input order, their signatures -> kept.npy [documents] bool, duplicates.jsonl with every removal.

    A document goes when it trains exactly what an earlier one does, or when its text is nearly that of an earlier one
    that stays, whatever its masks, roles and numbers.
    """
    offsets = [piece.column("offset") for piece in pieces]
    ends = np.cumsum([piece.documents for piece in pieces])
    kept = np.ones(int(ends[-1]), bool)

    def locate(index: int) -> Document:
        piece = int(np.searchsorted(ends, index, side="right"))
        return pieces[piece].document(int(offsets[piece][index - int(ends[piece])]))

    first = np.arange(len(kept))
    if dedup.exact:
        first = exact_duplicates(np.concatenate([piece.column("identity") for piece in pieces]))
        kept &= first == np.arange(len(first))
    exact = np.flatnonzero(~kept)
    near: list[Removal] = []
    if dedup.near is not None:
        matrices = [_Signatures(place, piece.documents) for place, piece in zip(signed, pieces, strict=True)]
        with spinner("comparing:") as show:
            near = near_duplicates(
                matrices,  # pyright: ignore[reportArgumentType]
                kept,
                lambda index: content(locate(index)),
                dedup.near,
                show,
            )
        kept[[removal.document for removal in near]] = False
    removals = merge((Removal(int(i), int(first[i]), 1.0, 1.0) for i in exact), near)
    with open(folder / "duplicates.jsonl", "w", encoding="utf-8") as file:
        for removal in removals:
            gone, stays = locate(removal.document), locate(removal.kept)
            row = {"removed": gone.where, "id": gone.id, "kept": stays.where, "kept_id": stays.id}
            row |= {"estimate": removal.estimate, "jaccard": removal.jaccard}
            print(json.dumps(row, ensure_ascii=False), file=file)
    np.save(folder / "kept.npy", kept)
    return {"exact": len(exact), "near": len(near), "warnings": _warnings(pieces, kept, dedup.alarm)}


class _Signatures:
    """Rows of a file [documents, permutations] uint32 that is open only while some are read: a process may have about
    a thousand files open, and a corpus has more pieces."""

    def __init__(self, folder: Path, documents: int):
        self._file, self._documents = folder / "signatures.npy", documents

    def __len__(self) -> int:
        return self._documents

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.load(self._file, mmap_mode="r")[rows]


def _warnings(pieces: Sequence[PieceOfText], kept: np.ndarray, share: float) -> list[str]:
    """A line for each source that lost more than ``share`` of its documents."""
    names = list(dict.fromkeys(piece.source for piece in pieces))
    numbers = [names.index(piece.source) for piece in pieces]
    source = np.repeat(numbers, [piece.documents for piece in pieces])
    return [
        f"{names[alarm.source]}: {alarm.removed:,} of {alarm.documents:,} documents are copies of earlier ones, more "
        f"than the share of {share:g} at which to warn (dedup.alarm); duplicates.jsonl names them"
        for alarm in alarms(~kept, source, share)
    ]
