"""Which documents are held out."""

import hashlib
from collections.abc import Iterable, Iterator

from seedbed.data.sources import Document, SplitName


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
