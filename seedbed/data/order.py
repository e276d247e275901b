"""The order in which training reads the bins of a split: functions of (place, length, seed, epoch) alone.

A saved position means nothing if the order moves, so every order that a release has trained by stays as it is, under
the number that the position is saved with.
"""

import hashlib
import math
from functools import lru_cache

import numpy as np

ROUNDS = 8


def shuffled(places: np.ndarray, length: int, seed: int, epoch: int) -> np.ndarray:
    """Order 2: the bins that stand at ``places`` [n], each below ``length``, in one epoch: [n] int64.

    Over all places it is a bijection of [0, length), and any part of it costs the memory of that part. A Feistel
    network (Luby and Rackoff 1988), with keys from (seed, epoch) and halves that count to the root of ``length``,
    rounded up, permutes hardly more than [0, length); where it leaves that, it is applied again until it comes back
    (Black and Rogaway 2002). ``seed`` and ``epoch`` are below 2^64.
    """
    root = np.uint64(math.isqrt(length - 1) + 1)
    material = seed.to_bytes(8, "little") + epoch.to_bytes(8, "little")
    keys = np.frombuffer(hashlib.blake2b(material, digest_size=8 * ROUNDS).digest(), dtype="<u8")
    bins = _permuted(places.astype(np.uint64), root, keys)
    outside = np.flatnonzero(bins >= length)
    while outside.size:
        bins[outside] = _permuted(bins[outside], root, keys)
        outside = outside[bins[outside] >= length]
    return bins.astype(np.int64)


def _permuted(numbers: np.ndarray, root: np.uint64, keys: np.ndarray) -> np.ndarray:
    """The Feistel network on numbers [n] uint64 below root^2, one round a key."""
    left, right = np.divmod(numbers, root)
    for key in keys:
        left, right = right, (left + _mixed(right ^ key) % root) % root
    return left * root + right


def _mixed(x: np.ndarray) -> np.ndarray:
    """x [n] uint64 with every bit spread over all: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def sorted_draws(places: np.ndarray, length: int, seed: int, epoch: int) -> np.ndarray:
    """Order 1, of runs whose saved position has no number: as :func:`shuffled`, but in 8 bytes a bin of memory."""
    return _ranks(length, seed, epoch)[places]


@lru_cache(1)
def _ranks(length: int, seed: int, epoch: int) -> np.ndarray:
    """Raw draws of a Philox generator, which numpy keeps between releases, sorted: [length] int64."""
    draws = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(length)
    return np.argsort(draws, kind="stable")


ORDERS = {1: sorted_draws, 2: shuffled}
NEWEST = 2
