"""Texts as sets of character n-grams, and MinHash signatures of them (S1 2.3)."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]

SIGNATURE_VERSION = f"rensa {RMinHash.ALGORITHM_VERSION}"
"""Signatures of different versions must never be compared."""

_SEED = 0
_FILL = "\U0010ffff"  # Unicode promises that it is no character
_BITS = np.uint64(21)  # of a code point; three of them fit one number
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: the upper bits of a product are a hash
_SMALL_SET = 1 << 12  # n-grams that leave most of 16 bits free
_BATCH_CHARS = 100_000  # what is made of them stays in the cache of a core
_BATCH_TEXTS = 64  # fewer than rensa would start threads for; the pipeline has processes, and threads do not fork


def shingles(text: str, ngram: int) -> np.ndarray:
    """The set of its character n-grams, [m] uint64, sorted; equal numbers are equal n-grams, for n up to 3.

    A text shorter than an n-gram is filled up to one, so that no set is empty and equal texts have equal sets.
    """
    grams = np.sort(_grams(text.ljust(ngram, _FILL), ngram))
    return grams[np.append(True, grams[1:] != grams[:-1])]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """|a ∩ b| / |a ∪ b| of two sets as shingles gives them, exactly."""
    merged = np.sort(np.concatenate([a, b]), kind="stable")  # a merge of what is in order: several times as fast
    both = int(np.count_nonzero(merged[1:] == merged[:-1]))
    return both / (len(a) + len(b) - both)


def folded(grams: np.ndarray) -> np.ndarray:
    """A hash of each n-gram of a set, for jaccard_bound, [m] uint16 of a small set, otherwise uint32."""
    small = len(grams) <= _SMALL_SET
    return (grams * _SPREAD >> np.uint64(48 if small else 32)).astype(np.uint16 if small else np.uint32)


def jaccard_bound(a: np.ndarray) -> Callable[[np.ndarray], float]:
    """What the similarity to another set is at most, mostly a little over it, from both sets folded.

    It takes a fifth of the time of jaccard, and a small set a quarter of the memory.
    """

    def marks(bits: int) -> np.ndarray:
        marked = np.zeros(1 << bits, bool)
        marked[a >> (8 * a.itemsize - bits)] = True
        return marked

    few = marks(16)
    # of a large set about a hundred hashes an n-gram: one that is not in the set seldom meets another
    bits = max(16, min(len(a).bit_length() + 6, 8 * a.itemsize))
    many = marks(bits) if bits > 16 else few

    def bound(b: np.ndarray) -> float:
        marked, places = (few, b) if b.itemsize == 2 else (many, b >> 32 - bits)
        both = min(np.count_nonzero(marked.take(places.astype(np.int64))), len(a))
        return both / (len(a) + len(b) - both)

    return bound


def signatures(texts: Sequence[str], ngram: int, permutations: int) -> np.ndarray:
    """MinHash signatures [n, permutations] uint32 of the sets that shingles gives, the same on every machine.

    Two signatures agree in an entry with a probability that is the Jaccard similarity of the two sets.
    """
    rows = np.empty((len(texts), permutations), np.uint32)
    for first, last in _batches(texts):
        filled = [text.ljust(ngram, _FILL) for text in texts[first:last]]
        grams = _grams("".join(filled), ngram)
        ends = np.cumsum([len(text) for text in filled])  # [texts of the batch] int64
        # n-grams that reach into the next text become copies of the last one before: a set does not see copies
        for reach in range(1, ngram):
            grams[ends[:-1] - reach] = grams[ends[:-1] - ngram]
        ends[-1] = len(grams)
        offsets = np.append(0, ends).astype(np.uint64)
        # rensa scrambles what it is given, so that the n-grams need no hash
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(grams, offsets, permutations, _SEED)
        rows[first:last] = matrix.to_rows()
    return rows


def _grams(text: str, ngram: int) -> np.ndarray:
    """Its n-grams in order, [characters - ngram + 1] uint64."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    count = len(codes) - ngram + 1
    grams = codes[:count]
    for place in range(1, ngram):
        grams = grams << _BITS | codes[place : place + count]
    return grams


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges of texts, each of few texts and few characters, or of one text."""
    first = chars = 0
    for index, text in enumerate(texts):
        if index > first and (index - first == _BATCH_TEXTS or chars + len(text) > _BATCH_CHARS):
            yield first, index
            first, chars = index, 0
        chars += len(text)
    if texts:
        yield first, len(texts)
