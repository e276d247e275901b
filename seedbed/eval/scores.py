"""Scores with standard errors, and the values of the items behind them: what every evaluation gives.

A score is a weighted mean over items (documents, questions, sentence pairs) or its exponential. Items are what chance
drew: two models that were scored on the same items are compared item by item, by the differences of `influences`.

With values v_i, weights w_i (1 where there are none) and W their sum:

- value: R = sum_i w_i v_i / W. With nats per token as values and tokens as weights this is the loss over all tokens,
  not a mean of means. ``scale="exp"`` gives exp(R): perplexity.
- influence of item i: u_i = w_i (v_i - R) / W, times exp(R) under ``scale="exp"`` (delta method). It says how far the
  value goes with the item, to first order.
- standard error: sqrt(n / (n - 1) sum_i u_i^2), the linearised ratio estimator (Cochran, Sampling Techniques, chapter
  6), which for equal weights is the standard deviation over sqrt(n). Items count as independent of one another; what is
  within one, such as the tokens of a document, may depend on each other as it likes.
- with strata (paradigms, subjects), which are part of the test and not drawn: R_k of the item's own stratum stands for
  R in u_i, and each stratum has its own n / (n - 1).

No standard error covers training seeds: it is for these weights of the model, over other items of the same kind.
"""

import math
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

ALL = "all"
"""The subset of all items."""
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Items:
    """The values of single items, of one model. Raises ValueError where lists differ in length, there is no item, an id
    comes twice, a value is not finite, or weights are negative or all zero."""

    task: str
    subset: str
    """ALL, or which of the task's items: a group such as `domain: code`, or a part such as a paradigm."""
    metric: str
    ids: list[str]
    """The same for every model, in any order."""
    values: list[float]
    weights: list[float] | None = None
    """Of the mean; they may differ between models, as tokens do between tokenizers."""
    strata: list[str] | None = None
    """Which fixed part of the test each item belongs to; None: all are of one kind."""
    scale: Literal["mean", "exp"] = "mean"

    def __post_init__(self):
        where = f"{self.task}, {self.subset}, {self.metric}"
        lists = [self.values, *(one for one in (self.weights, self.strata) if one is not None)]
        if not self.ids or any(len(one) != len(self.ids) for one in lists):
            raise ValueError(f"{where}: {len(self.ids)} ids with lists of {[len(one) for one in lists]}")
        if len(set(self.ids)) < len(self.ids):
            raise ValueError(f"{where}: an id comes twice")
        if not np.isfinite(self.values).all():
            raise ValueError(f"{where}: a value is not finite")
        if self.weights is not None and (min(self.weights) < 0 or not 0 < sum(self.weights) < math.inf):
            raise ValueError(f"{where}: weights that are negative, infinite or all zero")


@dataclass(frozen=True)
class Score:
    model: str
    task: str
    subset: str
    metric: str
    value: float
    stderr: float | None
    """None where a single item, or a stratum of a single one, has no spread to tell it by."""
    items: int
    unit: str
    """`bits/byte`, `nats/token`, `share`; empty for a plain number."""
    better: Better


class Scored(NamedTuple):
    """A score and the items that it is of."""

    score: Score
    items: Items


def scored(model: str, items: Items, unit: str, better: Better) -> Scored:
    """The score of ``items``, as this file's head defines it."""
    error = standard_error(influences(items), items.strata)
    value, n = value_of(items), len(items.ids)
    return Scored(Score(model, items.task, items.subset, items.metric, value, error, n, unit, better), items)


def value_of(items: Items) -> float:
    """The weighted mean of the values in float64, or its exponential (infinite where that overflows)."""
    mean = float(np.average(np.asarray(items.values, dtype=np.float64), weights=items.weights))
    return mean if items.scale == "mean" else float(np.exp(mean))


def influences(items: Items) -> np.ndarray:
    """[n]: how far the value goes with each item, to first order; they sum to 0 in each stratum.

    The difference of two models on the same items, in the same order, has the differences of theirs.
    """
    values = np.asarray(items.values, dtype=np.float64)
    weights = np.ones_like(values) if items.weights is None else np.asarray(items.weights, dtype=np.float64)
    found = np.zeros_like(values)
    for chosen in strata_of(items.strata, len(values)):
        total = weights[chosen].sum()
        if total > 0:
            mean = (weights[chosen] * values[chosen]).sum() / total
            found[chosen] = weights[chosen] * (values[chosen] - mean)
    found /= weights.sum()
    return found if items.scale == "mean" else found * value_of(items)


def standard_error(influence: np.ndarray, strata: Sequence[str] | None = None) -> float | None:
    """The standard error of a value whose items have these influences [n]; None where a stratum has a single item."""
    variance = 0.0
    for chosen in strata_of(strata, len(influence)):
        n = len(chosen)
        if n == 1:
            return None
        variance += n / (n - 1) * float((influence[chosen] ** 2).sum())
    return math.sqrt(variance)


def strata_of(strata: Sequence[str] | None, n: int) -> list[np.ndarray]:
    """The places of the items of each stratum; one of all ``n`` where there are none."""
    if strata is None:
        return [np.arange(n)]
    numbers = np.unique(strata, return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def macro(parts: Sequence[Items], subset: str) -> Items:
    """The items of ``parts`` as one, in which each part weighs the same, whatever its size: a mean of their means.

    Parts are strata, since a test has the same ones each time. Raises ValueError where they are not plain means of one
    task and metric.
    """
    kinds = {(part.task, part.metric, part.scale) for part in parts}
    if len(kinds) != 1 or any(part.scale != "mean" or part.weights is not None for part in parts):
        raise ValueError(f"no mean over {sorted(kinds)}")
    weights = [1 / (len(parts) * len(part.ids)) for part in parts for _ in part.ids]
    strata = [part.subset for part in parts for _ in part.ids]
    ids = [i for part in parts for i in part.ids]
    values = [value for part in parts for value in part.values]
    return Items(parts[0].task, subset, parts[0].metric, ids, values, weights, strata)


def only(items: Items, ids: Set[str]) -> Items:
    """The items with these ids, in their order."""
    if ids >= set(items.ids):
        return items
    places = [place for place, one in enumerate(items.ids) if one in ids]
    lists = {name: getattr(items, name) for name in ("ids", "values", "weights", "strata")}
    return replace(
        items, **{name: [one[i] for i in places] for name, one in lists.items() if one is not None}
    )  # fmt: skip


def unique(ids: Sequence[str]) -> list[str]:
    """The ids, with ` (2)` and so on behind those that came before."""
    seen: Counter[str] = Counter()
    found = []
    for one in ids:
        seen[one] += 1
        found.append(one if seen[one] == 1 else f"{one} ({seen[one]})")
    return found
