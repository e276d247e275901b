"""Sketches of MinHash signatures: few bits of each entry, enough to rule most pairs out without their texts."""

import math

import numpy as np

_BITS = 4  # of an entry; sixteen entries in a word
_LOWEST = np.uint64(0x1111_1111_1111_1111)  # bit of each entry


def sketches(rows: np.ndarray) -> np.ndarray:
    """The low four bits of each entry, [n, ceil(permutations / 16)] uint64 from signatures [n, permutations] uint32."""
    low = rows.astype(np.uint8) & 0xF
    low = np.pad(low, ((0, 0), (0, -rows.shape[1] % 16)))
    return (low[:, ::2] | low[:, 1::2] << 4).view("<u8")


def unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In how many entries sketches [n, words] differ from others [n or 1, words], [n] int64."""
    bits = a ^ b
    bits |= bits >> np.uint64(1)
    bits |= bits >> np.uint64(2)
    bits &= _LOWEST
    return np.bitwise_count(bits).sum(axis=1, dtype=np.int64)


def most_unequal(permutations: int, threshold: float) -> int:
    """More unequal entries than this rule a pair out: one that reaches the threshold has them once in 3 million."""
    likely = 1 - (1 - threshold) * (1 - 0.5**_BITS)  # that two entries agree, in the signature or by accident
    chance = 0.0  # of at most this many equal ones, binomial
    for count in range(permutations):
        chance += math.comb(permutations, count) * likely**count * (1 - likely) ** (permutations - count)
        if chance > 3e-7:  # as 5 standard deviations of a normal distribution
            return permutations - count
    return 0
