"""Which kept documents a document may be near to: locality-sensitive hashing of MinHash signatures."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from seedbed.data.sections import NearDuplicates
from seedbed.data.sketch import most_unequal, sketches, unequal

_CHUNK = 2048  # signatures read, or pairs compared, at once: what is made of them stays in the cache of a core
_LOOK = 128  # documents looked up at once: those of one look are compared with each other by their sketches
_MEET = 1 << 16  # kept documents that those of one look meet, all together


class Buckets:
    """Documents by bands of their signatures: those that agree in all of a band share a bucket, which holds kept ones.

    A document is known by its position among those alive. Memory: permutations / 2 + 10 * bands bytes a document at
    most, 314 at the defaults; what never shares a bucket has room in none.
    """

    def __init__(self, signatures: Sequence[np.ndarray], alive: np.ndarray, near: NearDuplicates):
        count = int(np.count_nonzero(alive))
        hashes = np.empty((count, near.bands), np.uint32)
        self._sketches = np.empty((count, -(-near.permutations // 16)), np.uint64)
        position = 0
        for rows in _chunks(signatures, alive):
            here = slice(position, position + len(rows))
            hashes[here] = band_hashes(rows, near)
            self._sketches[here] = sketches(rows)
            position += len(rows)
        # of each bucket: how many documents it holds, then these
        self._places, room = _place(hashes)
        self._kept = np.zeros(room, self._places.dtype)
        self._most = most_unequal(near.permutations, near.threshold)

    def __len__(self) -> int:
        return len(self._places)

    def shared(self) -> np.ndarray:
        """Positions that share a bucket with another, ascending."""
        return np.flatnonzero(self._places.any(axis=1))

    def near(self, positions: np.ndarray) -> list[list[int]]:
        """Documents that may reach the threshold with the first positions: a list for each, ascending.

        They are kept ones, and earlier ones of the positions [n], which ascend. There are lists for as many positions
        as meet few kept documents, for one at least.
        """
        positions = positions[:_LOOK]
        buckets = self._places[positions]  # [n, bands]
        counts = self._kept[buckets]  # place 0 holds none
        met = np.cumsum(counts.sum(axis=1, dtype=np.int64))
        number = max(1, int(np.searchsorted(met, _MEET, side="right")))
        positions, buckets, counts = positions[:number], buckets[:number], counts[:number].ravel()
        # pairs of an earlier document's position and the place of the later one among the positions
        ends = np.cumsum(counts, dtype=np.int64)
        earlier = self._kept[np.repeat(buckets.ravel() + 1 - ends + counts, counts) + np.arange(ends[-1])]
        later = np.repeat(np.arange(counts.size) // buckets.shape[1], counts)
        alike = self._alike(earlier, positions[later])
        first, second = np.triu_indices(number, 1)
        close = self._alike(positions[first], positions[second])
        first, second = first[close], second[close]
        meet = ((buckets[first] == buckets[second]) & (buckets[first] > 0)).any(axis=1)
        earlier = np.concatenate([earlier[alike], positions[first[meet]]])
        later = np.concatenate([later[alike], second[meet]])
        # in order, each once: many meet in several bands
        later, earlier = np.divmod(np.unique(later * len(self) + earlier), len(self))
        bounds, each = np.searchsorted(later, np.arange(number + 1)).tolist(), earlier.tolist()
        return [each[begin:end] for begin, end in pairwise(bounds)]

    def keep(self, positions: np.ndarray) -> None:
        """Have later documents compared with these, [n] int64."""
        buckets = self._places[positions]
        shared = buckets > 0
        documents, buckets = np.repeat(positions, shared.sum(axis=1)), buckets[shared]
        order = np.argsort(buckets, kind="stable")
        own, first, added = np.unique(buckets[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(first, added)  # among those that come into the same bucket
        self._kept[np.repeat(own + 1 + self._kept[own], added) + rank] = documents[order]
        self._kept[own] += added

    def _alike(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether the sketches of two positions leave room for the threshold, [n] bool of positions [n] and [n]."""
        alike, of = np.empty(len(a), bool), self._sketches.take
        for first in range(0, len(a), _CHUNK):
            part = slice(first, first + _CHUNK)
            alike[part] = unequal(of(a[part], axis=0), of(b[part], axis=0)) <= self._most
        return alike


def band_hashes(rows: np.ndarray, near: NearDuplicates) -> np.ndarray:
    """[n, bands] uint32 from signatures [n, permutations]; bands that differ share a hash once in 4 billion.

    Multiply-shift on vectors: the upper half of a sum of products with random 64-bit factors. A hash shared by
    accident costs one comparison.
    """
    factors = np.frombuffer(hashlib.shake_128(b"bands").digest(8 * near.rows), "<u8")
    bands = rows[:, : near.bands * near.rows].reshape(len(rows), near.bands, near.rows)
    return ((bands * factors).sum(axis=2) >> np.uint64(32)).astype(np.uint32)


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
