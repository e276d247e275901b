"""Exact and near copies among documents: which ones go, and for which earlier one that stays."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress, starmap
from typing import NamedTuple

import numpy as np

from seedbed.data.lsh import Buckets
from seedbed.data.minhash import folded, jaccard, jaccard_bound, shingles, signatures
from seedbed.data.sections import NearDuplicates
from seedbed.data.sketch import most_unequal, sketches, unequal

_FINE = 1024  # permutations of a second, sharper look
_MANY = 64  # candidates for which it pays: to make such a signature takes as long as some thirty comparisons
_HELD_BYTES = 32  # of folded n-grams in memory, for each document
_LEAST_HELD = 1 << 23  # bytes of them that a small corpus may hold, 2,000 documents of 2,000 characters
_OF_AN_ARRAY = 300  # bytes that one which is held takes beside its content
_CHUNK = 1024  # pairs whose signatures are read at once
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
    found, similarities = _search(Buckets(signed, alive, near), lambda i: text(int(documents[i])), near, show)
    pairs = documents[found]
    rows = zip(*pairs.T.tolist(), _estimates(signed, pairs), similarities, strict=True)
    return list(starmap(Removal, rows))


def _search(
    buckets: Buckets, text: Callable[[int], str], near: NearDuplicates, show: Callable[[str], None]
) -> tuple[np.ndarray, list[float]]:
    """Positions [m, 2] int64 of a document that goes and the one that stays, and their similarities."""

    @lru_cache((1 << 13) + len(buckets) // 16)  # of half a kilobyte each
    def fine(position: int) -> bytes:
        return sketches(signatures([text(position)], near.ngram, _FINE)).tobytes()

    grams = _Held(lambda position: shingles(text(position), near.ngram), _EXACT_BYTES)
    hashes = _Held(lambda position: folded(grams(position)), max(_LEAST_HELD, _HELD_BYTES * len(buckets)))
    most = most_unequal(_FINE, near.threshold)

    def first_near(position: int, candidates: list[int]) -> tuple[int, float] | None:
        if len(candidates) >= _MANY:
            rows = np.frombuffer(b"".join(map(fine, candidates)), np.uint64).reshape(len(candidates), -1)
            close = unequal(rows, np.frombuffer(fine(position), np.uint64)) <= most
            candidates = list(compress(candidates, close))
        return _first_near(candidates, position, grams, hashes, near.threshold) if candidates else None

    shared = buckets.shared()
    pairs: list[tuple[int, int]] = []
    similarities: list[float] = []
    done = 0
    while done < len(shared):
        show(f"{done:,} of {len(shared):,} similar documents compared, {len(pairs):,} removed")
        looked_up = buckets.near(shared[done:])
        here = shared[done : done + len(looked_up)]
        gone: set[int] = set()
        for position, candidates in zip(here.tolist(), looked_up, strict=True):
            found = first_near(position, [candidate for candidate in candidates if candidate not in gone])
            if found is not None:
                gone.add(position)
                pairs.append((position, found[0]))
                similarities.append(found[1])
        buckets.keep(here[[position not in gone for position in here.tolist()]])
        done += len(here)
    show(f"{len(shared):,} similar documents compared, {len(pairs):,} removed")
    return np.array(pairs, np.int64).reshape(-1, 2), similarities


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


def _estimates(signed: Sequence[np.ndarray], pairs: np.ndarray) -> list[float]:
    """Share of equal entries in the signatures of each of the pairs [m, 2]."""
    ends = np.cumsum([len(piece) for piece in signed])

    def rows(documents: np.ndarray) -> np.ndarray:
        pieces = np.searchsorted(ends, documents, side="right")
        order = np.argsort(pieces, kind="stable")
        used, first = np.unique(pieces[order], return_index=True)
        parts = [signed[n][documents[at] - ends[n]] for n, at in zip(used, np.split(order, first[1:]), strict=True)]
        return np.concatenate(parts)[np.argsort(order)]

    chunks = (pairs[first : first + _CHUNK].T for first in range(0, len(pairs), _CHUNK))
    return [share for a, b in chunks for share in (rows(a) == rows(b)).mean(axis=1).tolist()]


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
            self._bytes += array.nbytes + _OF_AN_ARRAY
        self._held[key] = array
        while self._bytes > self._most:
            self._bytes -= self._held.popitem(last=False)[1].nbytes + _OF_AN_ARRAY
        return array
