"""Bins of a store as a person reads them: whose tokens they are, which of them are predicted, what was cut off."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbed.data.document import SplitName
from seedbed.data.layout import ENDS

if TYPE_CHECKING:
    from seedbed.data.split import Split
    from seedbed.data.store import Store
    from seedbed.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """Tokens of one kind, one after another."""

    text: str
    """Bytes that are not UTF-8, as where a bin ends inside a character, are U+FFFD."""
    tokens: int
    predicted: bool
    """Whether they are targets: neither masked nor the first of their document."""
    control: bool
    """Whether it is a control token."""


@dataclass(frozen=True)
class Segment:
    """What a bin holds of one document."""

    domain: str
    lang: str
    position: int
    """Place of its first token in the document; above 0 it continues what another bin began."""
    tokens: int
    goes_on: bool
    """The document goes on in another bin."""
    cut_tokens: int
    """Tokens that were cut off behind it."""
    runs: list[Run]


@dataclass(frozen=True)
class Bin:
    number: int
    tokens: int
    padding: int
    segments: list[Segment]


@dataclass(frozen=True)
class Record:
    number: int
    outputs: dict[str, list[Bin] | list[float]]
    """The sequences of each output, a bin each, or its numbers."""


def look_at_record(store: "Store", split: SplitName, number: int, outputs: Sequence[str]) -> Record:
    """Some outputs of record ``number`` of a store that has several. Raises IndexError where there is none."""
    record, tokenizer, groups = store.record(split, number), store.tokenizer(), store.header["groups"]
    found: dict[str, list[Bin] | list[float]] = {}
    for name in outputs:
        if name in store.header["numbers"]:
            found[name] = [value for value in record[name] if isinstance(value, float)]
        else:
            part, items = store.streams[f"{split}/{name}"], store.items(split, name, number)
            found[name] = [look_at_bin(part, item, tokenizer, groups) for item in items]
    return Record(number, found)


def look_at_bin(part: "Split", number: int, tokenizer: "Tokenizer", groups: Sequence[dict[str, Any]]) -> Bin:
    """Bin ``number`` of a split; ``groups`` are the header's. Raises IndexError where there is none."""
    segments, real = part.segments(number)
    ids, trained = part.tokens(number)
    predicted = np.ones(real, bool) if trained is None else trained.copy()
    predicted[segments["offset"][segments["position"] == 0]] = False
    edges = pairwise([*segments["offset"].tolist(), real])
    found = [
        Segment(
            groups[segment["group"]]["domain"],
            groups[segment["group"]]["lang"],
            int(segment["position"]),
            end - begin,
            int(segment["next"]) != ENDS,
            int(segment["cut"]),
            _runs(ids[begin:end], predicted[begin:end], tokenizer),
        )
        for segment, (begin, end) in zip(segments, edges, strict=True)
    ]
    return Bin(number, real, part.seq_len - real, found)


def _runs(ids: np.ndarray, predicted: np.ndarray, tokenizer: "Tokenizer") -> list[Run]:
    """The tokens [n] of a segment; each control token is a run of its own."""
    names = {i: token for token, i in tokenizer.special_tokens.items()}
    control = np.isin(ids, list(names))
    borders = (predicted[1:] != predicted[:-1]) | control[1:] | control[:-1]
    edges = [0, *(np.flatnonzero(borders) + 1).tolist(), len(ids)]
    return [
        Run(
            names[int(ids[low])] if control[low] else tokenizer.decode(ids[low:high].tolist()),
            high - low,
            bool(predicted[low]),
            bool(control[low]),
        )
        for low, high in pairwise(edges)
    ]
