"""A text as arrays: the kind of each character, its words, and how much of it repeats."""

import re
import unicodedata
from functools import cache, cached_property

import numpy as np

_KINDS = ("symbol", "space", "digit", "mark", "other", "latin", "han")
_FIRST_WORD_KIND = _KINDS.index("digit")
_HAN_KIND = _KINDS.index("han")
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_LAST_PLANE_WITH_LETTERS = 0x33FFF  # what lies above is symbols; so is this


class Characters:
    """What filters look at in a text of m characters, each made once and when it is asked for."""

    def __init__(self, text: str):
        self.text = text

    @cached_property
    def codes(self) -> np.ndarray:
        """[m] uint32."""
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype="<u4")

    @cached_property
    def kinds(self) -> np.ndarray:
        """[m] uint8, indices into the names of kinds."""
        return _kind_of_code()[np.minimum(self.codes, _LAST_PLANE_WITH_LETTERS)]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Characters of each kind: letters (latin, han, other), mark, digit, space; symbol is all the rest."""
        return dict(zip(_KINDS, np.bincount(self.kinds, minlength=len(_KINDS)).tolist(), strict=True))

    @cached_property
    def word_starts(self) -> np.ndarray:
        """[w] int64. A word is a Han character, or other letters, marks and digits in a row."""
        in_word, han = self.kinds >= _FIRST_WORD_KIND, self.kinds == _HAN_KIND
        starts = in_word.copy()
        starts[1:] &= han[1:] | han[:-1] | ~in_word[:-1]
        return np.flatnonzero(starts)

    def words(self) -> np.ndarray:
        """[w] uint64: a hash of each word."""
        starts = self.word_starts
        if len(starts) == 0:
            return np.empty(0, dtype=np.uint64)
        lengths = np.diff(starts, append=len(self.codes))  # [w], with what follows the word
        place = np.arange(starts[0], len(self.codes)) - np.repeat(starts, lengths)
        values = _mix(self.codes[starts[0] :] + (place.astype(np.uint64) << np.uint64(32)))
        values[self.kinds[starts[0] :] < _FIRST_WORD_KIND] = 0
        return np.add.reduceat(values, starts - starts[0])


@cache
def _kind_of_code() -> np.ndarray:
    """[codes] uint8."""
    return np.array([_KINDS.index(_kind(chr(code))) for code in range(_LAST_PLANE_WITH_LETTERS + 1)], dtype=np.uint8)


def _kind(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace():
        return "space"
    if _HAN.match(char):
        return "han"
    if category[0] == "L":
        return "latin" if "LATIN" in unicodedata.name(char, "") else "other"
    return {"M": "mark", "N": "digit"}.get(category[0], "symbol")


def repeated_share(items: np.ndarray, n: int) -> float:
    """Share of ``items``, [m] uint32 or uint64, that lie in an ``n``-gram which occurred before; 0 without any.

    An n-gram counts from its second occurrence on, which may overlap the first, and an item is counted once, however
    many repeated n-grams it lies in. So "abcabc" has a share of 1/2 for n of 1 to 3, and "aaaa…" nearly 1. n-grams are
    compared by a hash of 64 bits less those of m, so that one sort of (hash, place) tells the later occurrences:
    m·log m, and hardly more for a larger n.
    """
    starts = len(items) - n + 1
    if starts < 2:
        return 0.0
    place_mask = np.uint64((1 << starts.bit_length()) - 1)
    ordered = _hash(items, n)  # [starts]
    ordered &= ~place_mask
    ordered |= np.arange(starts, dtype=np.uint64)
    ordered.sort()
    later = ordered[1:][(ordered[1:] ^ ordered[:-1]) <= place_mask] & place_mask  # places of all but first occurrences
    edges = np.zeros(len(items) + 1, dtype=np.int8)  # +1 where a repeated n-gram starts, -1 after it
    edges[later] += 1
    edges[later + np.uint64(n)] -= 1
    return np.count_nonzero(np.cumsum(edges, dtype=np.int32)) / len(items)


def _hash(items: np.ndarray, n: int) -> np.ndarray:
    """Hashes of all n-grams, [m - n + 1] uint64. Those of length 2k are made from pairs of length k."""
    hashes = _mix(items.astype(np.uint64))
    length = 1
    while length < n:
        step = min(length, n - length)  # the last pair overlaps
        pairs = hashes[:-step] * np.uint64(0x9E3779B97F4A7C15)
        pairs += hashes[step:]
        hashes = _mix(pairs)
        length += step
    return hashes


def _mix(values: np.ndarray) -> np.ndarray:
    """``values``, uint64, changed in place by a bijection whose high bits depend on all of theirs."""
    values ^= values >> np.uint64(32)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    return values
