"""Time and fill of each packing strategy at 100,000 and 1,000,000 documents, beside best fit decreasing one by one.

    python benchmarks/packing.py [--repeats 5]

Lengths are log-normal (median 400 tokens, mean 830) for bins of 2048 and 8192 tokens, and evenly spread up to 2^20 for
bins of as many: hardly two documents of one length, the hardest case for packing lengths at a time. "One by one" is
the usual way to write best fit decreasing: a sorted list of (room, bin), searched by bisection for each document, which
moves the list's end each time; it runs on 100,000 documents alone, and must open as many bins.
"""

import argparse
import math
import statistics
import time
from bisect import bisect_left, insort
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np

from seedbed.data.packing import Strategy, pack

FEW, MANY = 100_000, 1_000_000


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def log_normal(count: int) -> np.ndarray:
    """[count] int64 tokens."""
    return np.exp(np.random.RandomState(0).normal(6, 1.2, count)).astype(np.int64) + 1


def spread(count: int) -> np.ndarray:
    """[count] int64 tokens."""
    return np.random.RandomState(0).randint(1, 2**20 + 1, count)


def one_by_one(lengths: np.ndarray, seq_len: int) -> int:
    """Bins that best fit decreasing opens."""
    rooms: list[tuple[int, int]] = []
    opened = 0
    for length in np.sort(np.minimum(lengths, seq_len))[::-1].tolist():
        at = bisect_left(rooms, (length, 0))
        if at < len(rooms):
            room, number = rooms.pop(at)
        else:
            room, number = seq_len, opened
            opened += 1
        insort(rooms, (room - length, number))
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"n log n grows by {MANY * math.log(MANY) / (FEW * math.log(FEW)):.1f}")
    for lengths, seq_len in ((log_normal, 2048), (log_normal, 8192), (spread, 2**20)):
        few, many = lengths(FEW), lengths(MANY)
        print(f"\n{lengths.__name__} {seq_len}\n              100k s    1M s  growth       bins    fill  tokens cut")
        times = {}
        for strategy in get_args(Strategy):
            short = times[strategy] = seconds(partial(pack, few, strategy, seq_len), repeats)
            long = seconds(partial(pack, many, strategy, seq_len), repeats)
            packed = pack(many, strategy, seq_len)
            bins = len(packed.bins) - 1
            fill, cut = packed.length.sum() / (bins * seq_len), packed.cut_tokens / many.sum()
            print(f"{strategy:12} {short:8.4f} {long:7.4f} {long / short:7.1f} {bins:10,} {fill:7.2%} {cut:11.2%}")
        plain = seconds(partial(one_by_one, few, seq_len), 1)
        same = one_by_one(few, seq_len) == len(pack(few, "bfd", seq_len).bins) - 1
        print(f"one by one   {plain:8.4f}  {plain / times['bfd']:.1f} times bfd, {'as many' if same else 'OTHER'} bins")


if __name__ == "__main__":
    main()
