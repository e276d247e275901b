"""Which kept documents a document may be near to: locality-sensitive hashing of MinHash signatures."""

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np

from seedbed.data.sections import NearDuplicates

_CHUNK = 4096  # signatures read at once


class Buckets:
    """Documents by bands of their signatures: those that agree in all of a band share a bucket, which holds kept ones.

    A document is known by its position among those alive. Memory: permutations + 10 * bands bytes a document at most,
    378 at the defaults; what never shares a bucket has room in none.
    """

    def __init__(self, signatures: Sequence[np.ndarray], alive: np.ndarray, near: NearDuplicates):
        count = int(np.count_nonzero(alive))
        hashes = np.empty((count, near.bands), np.uint32)
        self._low = np.empty((count, near.permutations), np.uint8)  # low bytes of the signatures
        position = 0
        for rows in _chunks(signatures, alive):
            here = slice(position, position + len(rows))
            hashes[here] = band_hashes(rows, near)
            self._low[here] = rows.astype(np.uint8)
            position += len(rows)
        # of each bucket: how many documents it holds, then these
        self._places, room = _place(hashes)
        self._kept = np.zeros(room, self._places.dtype)
        self._least = least_agreement(near.permutations, near.threshold)

    def shared(self) -> np.ndarray:
        """Positions that share a bucket with another, ascending."""
        return np.flatnonzero(self._places.any(axis=1))

    def near(self, position: int) -> list[int]:
        """Kept documents that may reach the threshold with this one, ascending positions."""
        buckets, counts = self._of(position)
        if not counts.any():
            return []
        ends = np.cumsum(counts)
        candidates = self._kept[np.repeat(buckets + 1 - ends + counts, counts) + np.arange(ends[-1])]
        agreeing = agreement(self._low.take(candidates, axis=0), self._low[position]) >= self._least
        return sorted(set(candidates[agreeing].tolist()))

    def keep(self, position: int) -> None:
        """Have later documents compared with this one."""
        buckets, counts = self._of(position)
        self._kept[buckets + 1 + counts] = position
        self._kept[buckets] = counts + 1

    def _of(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """(where its buckets begin, how many documents each holds)."""
        buckets = self._places[position]
        buckets = buckets[buckets > 0]
        return buckets, self._kept[buckets]


def band_hashes(rows: np.ndarray, near: NearDuplicates) -> np.ndarray:
    """[n, bands] uint32 from signatures [n, permutations]; bands that differ share a hash once in 4 billion.

    Multiply-shift on vectors: the upper half of a sum of products with random 64-bit factors. A hash shared by
    accident costs one comparison.
    """
    factors = np.frombuffer(hashlib.shake_128(b"bands").digest(8 * near.rows), "<u8")
    bands = rows[:, : near.bands * near.rows].reshape(len(rows), near.bands, near.rows)
    return ((bands * factors).sum(axis=2) >> np.uint64(32)).astype(np.uint32)


def least_agreement(permutations: int, threshold: float) -> int:
    """Fewer equal entries than this rule a pair out: one that reaches the threshold has them once in 3 million."""
    chance = 0.0  # of at most this many, binomial
    for count in range(permutations):
        chance += math.comb(permutations, count) * threshold**count * (1 - threshold) ** (permutations - count)
        if chance > 3e-7:  # as 5 standard deviations of a normal distribution
            return count
    return permutations


def agreement(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """In how many entries each of rows [n, permutations] equals the row, [n] uint16."""
    # count_nonzero along an axis takes several times as long
    return (rows == row).view(np.uint8).sum(axis=1, dtype=np.uint16)


def _chunks(signatures: Sequence[np.ndarray], alive: np.ndarray) -> Iterator[np.ndarray]:
    """The signatures of documents that are alive, some at a time."""
    document = 0
    for piece in signatures:
        for first in range(0, len(piece), _CHUNK):
            rows = piece[first : first + _CHUNK]
            yield rows[alive[document : document + len(rows)]]
            document += len(rows)


def _place(hashes: np.ndarray) -> tuple[np.ndarray, int]:
    """Where the bucket of each hash begins, [n, bands], 0 where no other document has it; and the room of them all.

    A bucket has room for its documents and their number. The hashes give up their memory to the places.
    """
    count = len(hashes)
    small = 3 * hashes.size // 2 + 1 < 2**31  # room at most: documents, and buckets of two or more
    places = hashes.view(np.int32) if small else np.empty(hashes.shape, np.int64)
    room = 1  # 0 is no bucket
    for band, place in zip(hashes.T, places.T, strict=True):
        # hash and position in one number: sorted by hash, equal ones by position
        ordered = np.sort(band.astype(np.uint64) << np.uint64(32) | np.arange(count, dtype=np.uint64))
        again = np.zeros(count, bool)  # the hash of the one before
        again[1:] = np.diff(ordered >> np.uint64(32)) == 0
        shared = again.copy()
        shared[:-1] |= again[1:]
        bucket = np.cumsum(~again[shared]) - 1
        sizes = np.bincount(bucket) + 1
        begins = room + np.cumsum(sizes) - sizes
        place[:] = 0
        place[ordered[shared].astype(np.uint32)] = begins[bucket]
        room += int(sizes.sum())
    return places, room
