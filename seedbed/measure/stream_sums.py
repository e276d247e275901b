"""What is kept of a residual stream: sums over tokens and counts in bins, which add up over batches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seedbed.measure.bins import Bins, largest, median

GROUPS = FIRST, OTHERS = ("first", "others")
EMBEDDED = -1
"""The layer that stands for the embedded input."""

Sums = dict[str, dict[str, float]]  # {first or others: {measure: sum over its tokens}}


@dataclass
class StreamSums:
    """Sums over tokens; keys are text and values numbers or text, so that it goes through JSON."""

    width: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    stream: dict[str, Sums] = field(
        default_factory=dict
    )  # by layer, "-1" for e: norm, variance, largest, massive, flow
    branches: dict[str, dict[str, Sums]] = field(default_factory=dict)  # by branch and layer: ratio, cosine
    sources: dict[str, dict[str, str]] = field(default_factory=dict)  # by branch and layer: the module that gave it
    bins: dict[str, dict[str, dict[str, Bins]]] = field(
        default_factory=dict
    )  # by "stream 0" or "attn 0": {first or others: {measure: bins}}, of all measures but cosines
    norms: dict[str, Sums] = field(default_factory=dict)  # by name: second_moment, masking, masking_usual
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name: a Norm's fields
    unread: dict[str, str] = field(default_factory=dict)  # layer -> why what its branches add is not known
    unmeasured: dict[str, str] = field(default_factory=dict)  # name of a norm -> why

    def add(self, other: "StreamSums") -> None:
        """Take in another batch of the same model."""
        self.width = other.width
        for mine, its in (
            (self.tokens, other.tokens), (self.stream, other.stream), (self.branches, other.branches),
            (self.norms, other.norms), (self.bins, other.bins),
        ):  # fmt: skip
            _add(mine, its)
        for mine, its in ((self.kinds, other.kinds), (self.unread, other.unread), (self.unmeasured, other.unmeasured)):
            mine |= its
        for branch, sources in other.sources.items():
            self.sources.setdefault(branch, {}).update(sources)

    def mean(self, sums: Sums, measure: str, groups: Iterable[str] = GROUPS) -> float:
        """Over the tokens of ``groups``; NaN without any."""
        groups = [group for group in groups if self.tokens[group]]
        total = sum(self.tokens[group] for group in groups)
        return sum(sums[group][measure] for group in groups) / total if total else float("nan")

    def median(self, place: str, measure: str, group: str) -> float:
        """Over the tokens of ``group``, to 2 %; ``place`` as in ``bins``. NaN without any."""
        return median(self.bins[place][group][measure])

    def most(self, place: str, measure: str, group: str) -> float:
        """The largest of any token of ``group``, to 2 %."""
        return largest(self.bins[place][group][measure])


def _add(mine: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict):
            _add(mine.setdefault(key, {}), value)
        else:
            mine[key] = mine.get(key, 0) + value
