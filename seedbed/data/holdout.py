"""Which documents are held out."""

import numpy as np


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
