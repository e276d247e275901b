"""Exact and near copies among documents: which ones go, and for which earlier one that stays."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from seedbed.data.lsh import Buckets
from seedbed.data.minhash import folded, jaccard, jaccard_bound, shingles, signatures
from seedbed.data.sections import NearDuplicates
from seedbed.data.sketch import most_unequal, sketches, unequal

_FINE = 1024  # permutations of a second, sharper look
_MANY = 64  # candidates for which it pays: to make such a signature takes as long as some thirty comparisons
_HELD_BYTES = 64  # of folded n-grams in memory, for each document
_LEAST_HELD = 1 << 24  # bytes of them that a small corpus may hold, 4,000 documents of 2,000 characters
_EXACT_BYTES = 1 << 21  # of n-grams themselves, of those compared last


class Removal(NamedTuple):
    """A document that is nearly an earlier, kept one."""

    document: int
    kept: int
    estimate: float
    """Share of the entries in which their signatures agree."""
    jaccard: float
    """Exact similarity of their n-grams."""


class Alarm(NamedTuple):
    """A source that lost more of its documents than it may."""

    source: int
    removed: int
    documents: int


def exact_duplicates(hashes: np.ndarray) -> np.ndarray:
    """The first document with the same hash, its own index for a first one, [n] int64 from hashes [n, 2] uint64."""
    order = np.lexsort(hashes.T)  # stable: of equal ones the first comes first
    begins = np.ones(len(order), bool)
    begins[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first


def near_duplicates(
    signed: Sequence[np.ndarray],
    alive: np.ndarray,
    text: Callable[[int], str],
    near: NearDuplicates,
    show: Callable[[str], None],
) -> list[Removal]:
    """Documents that reach the threshold with an earlier kept one, in order, each with the first such one (S1 2.3).

    ``signed`` are those of all documents in order, in pieces [any, permutations] uint32; ``alive`` [n] bool leaves
    out documents that are gone already; ``text`` is asked for documents that may be copies or have some. Documents are
    compared where a band of their signatures agrees: of pairs at the default threshold 1 in 100 is overlooked, at 0.8
    1 in 20,000. No pair is removed on an estimate: the sets of both are compared, exactly.
    """
    documents = np.flatnonzero(alive)
    buckets = Buckets(signed, alive, near)

    @lru_cache((1 << 13) + len(documents) // 16)  # of half a kilobyte each
    def fine(position: int) -> bytes:
        return sketches(signatures([text(int(documents[position]))], near.ngram, _FINE)).tobytes()

    grams = _Held(lambda position: shingles(text(int(documents[position])), near.ngram), _EXACT_BYTES)
    hashes = _Held(lambda position: folded(grams(position)), max(_LEAST_HELD, _HELD_BYTES * len(documents)))
    most = most_unequal(_FINE, near.threshold)
    ends = np.cumsum([len(piece) for piece in signed])
    shared = buckets.shared()
    removals: list[Removal] = []
    done = 0
    while done < len(shared):
        show(f"{done:,} of {len(shared):,} similar documents compared, {len(removals):,} removed")
        kept: list[int] = []
        gone: set[int] = set()
        looks = buckets.near(shared[done:])
        for position, candidates in zip(shared[done : done + len(looks)].tolist(), looks, strict=True):
            candidates = [candidate for candidate in candidates if candidate not in gone]
            if len(candidates) >= _MANY:
                rows = np.frombuffer(b"".join(map(fine, candidates)), np.uint64).reshape(len(candidates), -1)
                close = unequal(rows, np.frombuffer(fine(position), np.uint64)) <= most
                candidates = list(compress(candidates, close))
            found = _first_near(candidates, position, grams, hashes, near.threshold) if candidates else None
            if found is None:
                kept.append(position)
            else:
                gone.add(position)
                candidate, similarity = found
                document, stays = int(documents[position]), int(documents[candidate])
                removals.append(Removal(document, stays, _estimate(signed, ends, (document, stays)), similarity))
        buckets.keep(np.array(kept, np.int64))
        done += len(looks)
    show(f"{len(shared):,} similar documents compared, {len(removals):,} removed")
    return removals


def alarms(removed: np.ndarray, source: np.ndarray, share: float) -> list[Alarm]:
    """Sources that lost more than this share, from removed [n] bool and the source [n] int of each document."""
    documents = np.bincount(source)
    lost = np.bincount(source[removed], minlength=len(documents))
    return [Alarm(int(i), int(lost[i]), int(documents[i])) for i in np.flatnonzero(lost > share * documents)]


def _first_near(
    candidates: Sequence[int],
    position: int,
    grams: Callable[[int], np.ndarray],
    hashes: Callable[[int], np.ndarray],
    threshold: float,
) -> tuple[int, float] | None:
    """The first candidate that reaches the threshold, and its similarity."""
    bound = jaccard_bound(hashes(position))
    for candidate in candidates:
        if bound(hashes(candidate)) < threshold:
            continue
        similarity = jaccard(grams(candidate), grams(position))
        if similarity >= threshold:
            return candidate, similarity
    return None


def _estimate(signatures: Sequence[np.ndarray], ends: np.ndarray, pair: tuple[int, int]) -> float:
    pieces = np.searchsorted(ends, pair, side="right")
    a, b = (signatures[piece][index - ends[piece]] for piece, index in zip(pieces, pair, strict=True))
    return float(np.mean(a == b))


class _Held:
    """Arrays that are made when asked for; those asked for last are held, as many as the bytes allow."""

    def __init__(self, make: Callable[[int], np.ndarray], most: int):
        self._make, self._most = make, most
        self._held: OrderedDict[int, np.ndarray] = OrderedDict()
        self._bytes = 0

    def __call__(self, key: int) -> np.ndarray:
        array = self._held.pop(key, None)
        if array is None:
            array = self._make(key)
            self._bytes += array.nbytes
        self._held[key] = array
        while self._bytes > self._most:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return array
