"""Which documents are held out."""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from seedbed.data.sources import Document, SplitName


def held_out(hashes: np.ndarray, fraction: float, fixed: np.ndarray) -> np.ndarray:
    """Which documents are held out: [n] bool.

    ``hashes`` [n, ...] are `text_hash` of their texts, 16 bytes each whatever the dtype; ``fixed`` [n] int8 is 1 where
    the source holds a document out, 0 where it lets it train, -1 where the text decides.

    A text has a place in [0, 1) by its hash, and is held out where that is below ``fraction``: the same everywhere and
    always, whatever else the corpus holds. So copies land on one side. Copies of a text that the source decided follow
    it, to held-out where it decided both ways.

    With a fraction above 0 neither side stays empty: of the texts that are not decided by the source, the one whose
    place is nearest to the other side goes there with all its copies. A single text stays together, and trains.
    """
    place = _places(hashes)
    held = place < fraction
    # what the source decided, and the copies of it
    held[np.isin(place, place[fixed == 0])] = False
    held[np.isin(place, place[fixed == 1])] = True
    held[fixed == 0] = False
    if fraction > 0 and (held.all() or not held.any()):
        free = ~np.isin(place, place[fixed >= 0])
        texts = place[free]
        if free.all() and (texts == texts[:1]).all():
            held[:] = False
        elif len(texts):
            nearest = texts.max() if held.all() else texts.min()
            held[free & (place == nearest)] ^= True
    return held


def _places(hashes: np.ndarray) -> np.ndarray:
    """Where each text falls in [0, 1): [n] fp64, the first 53 bits of its hash."""
    leading = np.ascontiguousarray(hashes).view(">u8").reshape(-1, 2)[:, 0]
    return (leading >> np.uint64(11)) / 2.0**53


def position(text: str) -> float:
    """Where a text falls in [0, 1): the same everywhere and always, whatever else the corpus holds."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def assign_splits(documents: Iterable[Document], fraction: float) -> Iterator[tuple[SplitName, Document]]:
    """Give each document its split: its own where it has one, else held out if its text falls below ``fraction``.

    By text, not by id: copies of a document land on one side, whatever they are called.

    With a fraction above 0 and two documents or more neither split stays empty: until both have a document, the one
    whose text lies nearest to the other side is kept waiting, and takes that side if nothing else did by the end. One
    document waits at most. A single document trains.
    """
    filled: set[SplitName] = set()
    waiting: tuple[SplitName, Document] | None = None
    for document in documents:
        if document.split is not None:
            filled.add(document.split)
            yield document.split, document
            continue
        side: SplitName = "heldout" if position(document.text) < fraction else "train"
        if fraction == 0 or len(filled) == 2:
            filled.add(side)
            yield side, document
        elif waiting is None:
            waiting = side, document
        elif waiting[0] != side:
            filled |= {side, waiting[0]}
            yield waiting
            yield side, document
            waiting = None
        else:
            nearest = max if side == "heldout" else min
            keep = nearest((waiting[1], document), key=lambda candidate: position(candidate.text))
            yield side, document if keep is waiting[1] else waiting[1]
            waiting = side, keep
            filled.add(side)
    if waiting is not None:
        side, document = waiting
        other: SplitName = "train" if side == "heldout" else "heldout"
        yield (other if side in filled and other not in filled else side) if filled else "train", document
