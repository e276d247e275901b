"""What a store holds, counted from the index of its shards: a few passes over arrays, a block at a time."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbed.data.layout import BIN, SEGMENT, read_array

BLOCK_SEGMENTS = 1_000_000  # looked at together
LEVELS = 34  # a document has fewer than 2**34 tokens: its place in one and what is cut off behind are uint32
FILLS = 11  # tenths of a bin, and full


class Block(NamedTuple):
    """Some bins of a shard, with their segments."""

    fill: np.ndarray  # [bins] int64, tokens
    length: np.ndarray  # [segments] int64, tokens
    segments: np.ndarray  # [segments] SEGMENT


def survey(store: Path, name: str, header: dict[str, Any]) -> dict[str, Any]:
    """The stream ``name`` of a store, as JSON values.

    `lengths`: documents by tokens (with those cut off), from 2**i to below 2**(i + 1), for i from 0. `fill`: bins by
    the share of them that tokens fill, in tenths; the last number is that of full bins. `groups`: tokens stored and cut
    off of each of the header's groups.
    """
    groups = len(header["groups"])
    lengths, fill = np.zeros(LEVELS, np.int64), np.zeros(FILLS, np.int64)
    tokens, cut = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for shard in header["streams"][name]["shards"]:
        for block in _blocks(store / name / shard["name"]):
            begin = block.segments["position"].astype(np.int64)
            end = begin + block.length + block.segments["cut"]
            # each segment but a document's last is followed by one that begins where it ends: what is left are lengths
            lengths += _levels(end) - _levels(begin[begin > 0])
            fill += np.bincount(block.fill * (FILLS - 1) // header["seq_len"], minlength=FILLS)
            # sums of whole numbers below 2**53 are exact in float64
            tokens += np.bincount(block.segments["group"], block.length, groups).astype(np.int64)
            cut += np.bincount(block.segments["group"], block.segments["cut"], groups).astype(np.int64)
    return {
        "lengths": np.trim_zeros(lengths, "b").tolist(),
        "fill": fill.tolist(),
        "groups": [{"tokens": stored, "cut_tokens": off} for stored, off in zip(tokens.tolist(), cut.tolist())],  # noqa: B905
    }


def _levels(counts: np.ndarray) -> np.ndarray:
    """How many of the ``counts`` [n], from 1, lie from 2**i to below 2**(i + 1): [LEVELS]."""
    return np.bincount(np.frexp(counts)[1] - 1, minlength=LEVELS)


def _blocks(shard: Path) -> Iterator[Block]:
    bins, segments = read_array(shard / "bins.bin", BIN), read_array(shard / "segments.bin", SEGMENT)
    first = bins["segment"]  # [bins + 1]
    edges = np.unique(np.append(np.searchsorted(first, np.arange(0, len(segments), BLOCK_SEGMENTS)), len(bins) - 1))
    for low, high in pairwise(edges):
        token, begin = bins["token"][low : high + 1], first[low : high + 1]
        block = segments[begin[0] : begin[-1]]
        starts = np.repeat(token[:-1], np.diff(begin)) + block["offset"]
        yield Block(np.diff(token), np.diff(starts, append=token[-1]), block)
