"""Which tokens of which document stand in which bin."""

import heapq
from array import array
from typing import Literal, NamedTuple

import numpy as np

Strategy = Literal["simple", "bfd", "bfd_split", "none"]


class Packed(NamedTuple):
    """Bins in order of their creation, and what they hold: a segment is a run of one document's tokens in one bin."""

    document: np.ndarray  # [S] int64, index into lengths
    begin: np.ndarray  # [S] int64, first token of the document in the segment
    length: np.ndarray  # [S] int64, tokens
    bins: np.ndarray  # [B + 1] int64, bin b holds the segments from bins[b] to bins[b + 1]
    cut_documents: int
    """Documents that lost tokens."""
    cut_tokens: int


def pack(lengths: np.ndarray, strategy: Strategy, seq_len: int) -> Packed:
    """Put documents of ``lengths`` [n] tokens (integers above 0) into bins of ``seq_len`` tokens.

    simple: documents one after another in windows; only the last bin has room left.
    bfd: best fit decreasing (:func:`_best_fit_decreasing`); of a document longer than a bin the end is cut off.
    bfd_split: best fit decreasing of pieces; a longer document gives pieces of seq_len tokens, and one of the rest.
    none: a bin for each document; the end of a longer one is cut off.

    Segments of a bin are in the order in which they came to it, the segments of a document in the order of its tokens.
    Takes O(n log n) time and memory linear in documents and segments. Raises ValueError for a document without tokens.
    """
    lengths = np.asarray(lengths).astype(np.int64, casting="same_kind")  # sums of narrow types would wrap around
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"document {int(lengths.argmin())} has {int(lengths.min())} tokens")
    if strategy == "simple":
        return _windows(lengths, seq_len)
    if strategy == "bfd_split":
        return _fill(*_pieces(lengths, seq_len), seq_len)
    kept = np.minimum(lengths, seq_len)
    document, begin = np.arange(len(kept)), np.zeros(len(kept), np.int64)
    cut = {"cut_documents": int((lengths > kept).sum()), "cut_tokens": int((lengths - kept).sum())}
    if strategy == "none":
        return Packed(document, begin, kept, np.arange(len(kept) + 1), **cut)
    return _fill(document, begin, kept, seq_len)._replace(**cut)


def _best_fit_decreasing(lengths: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Items, longest first, each into the fullest bin that still takes it, else into a new one.

    Of items of one length [n] the earlier goes first; of bins with the same room left the one filled last is taken.
    Returns the items in this order [n] int64, and the bin of each [n] int64; bins are numbered as they are opened.

    Items of one length go the same way until the bins they meet run out: the fullest bin that takes one is also the
    fullest for the next, until it takes no more. So bins are kept by the room they have left, and each step moves
    all bins of one room at once. Those with room for the length at hand are a stack, least room on top: a step takes
    the top, and what it leaves is either still on top, or too full until the lengths have fallen further. These wait
    in a heap. Each step places an item at least and costs O(log n).
    """
    order = np.argsort(-lengths, kind="stable")
    falling = lengths[order]
    first = np.flatnonzero(np.diff(falling, prepend=0))  # item of each distinct length
    sizes, counts = falling[first], np.diff(first, append=len(falling))
    fitting: list[tuple[int, array[int]]] = []  # (room, bins in the order they came to it), least room last
    waiting: dict[int, array[int]] = {}  # room -> bins, where there is too little room at present
    heap: list[int] = []  # -room for each key of waiting
    opened = 0
    bins, taken = array("q"), array("q")  # visits of bins, and how many of the next items each one took
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        while heap and -heap[0] >= size:
            room = -heapq.heappop(heap)
            fitting.append((room, waiting.pop(room)))
        while count:
            if not fitting:
                new = -(-count // (seq_len // size))
                opened += new
                fitting.append((seq_len, array("q", range(opened - 1, opened - 1 - new, -1))))
            room, candidates = fitting.pop()
            each = min(room // size, count)
            used = min(count // each, len(candidates))
            moved = candidates[len(candidates) - used :]
            del candidates[len(candidates) - used :]
            moved.reverse()
            if candidates:
                fitting.append((room, candidates))
            bins.extend(moved)
            taken.extend(array("q", [each]) * used)
            count -= each * used
            room -= each * size
            if room >= size:  # the last bin, for which there were too few items
                fitting.append((room, moved))
            elif room in waiting:
                waiting[room].extend(moved)
            else:
                waiting[room] = moved
                heapq.heappush(heap, -room)
    return order, np.repeat(np.asarray(bins), np.asarray(taken))


def _windows(lengths: np.ndarray, seq_len: int) -> Packed:
    """The stream of all documents, cut where a document starts and where a bin does."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    starts = ends - lengths
    windows = np.arange(0, total, seq_len)
    cuts = np.sort(np.concatenate((starts, windows)), kind="stable")  # two sorted runs: merged in linear time
    cuts = cuts[np.diff(cuts, prepend=-1) > 0]
    document = np.searchsorted(ends, cuts, side="right")
    bins = np.append(np.searchsorted(cuts, windows), len(cuts))
    return Packed(document, cuts - starts[document], np.diff(cuts, append=total), bins, 0, 0)


def _pieces(lengths: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(document, begin, length), each [S] int64, of pieces of at most seq_len tokens, in order."""
    count = -(-lengths // seq_len)
    document = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)  # of the piece in its document
    begin = number * seq_len
    return document, begin, np.minimum(lengths[document] - begin, seq_len)


def _fill(document: np.ndarray, begin: np.ndarray, length: np.ndarray, seq_len: int) -> Packed:
    """Bins of segments [S] that are no longer than one, by best fit decreasing."""
    order, bin_of = _best_fit_decreasing(length, seq_len)
    order = order[np.argsort(bin_of, kind="stable")]
    bins = np.append(0, np.cumsum(np.bincount(bin_of)))
    return Packed(document[order], begin[order], length[order], bins, 0, 0)
