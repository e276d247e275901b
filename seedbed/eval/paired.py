"""Two models on the same items: the difference of their scores, and how far chance reaches.

The difference is ``b - a``. Its standard error is that of the differences of the items' influences
(`seedbed.eval.scores`), so that items which are hard for both models weigh nothing, and weights, strata and
perplexities are dealt with as in a single score. The 95 % interval is a t interval over items, with as many degrees of
freedom as items less strata.

The p value, two-sided, is of

- McNemar's exact test (McNemar 1947), where items are right or wrong and weigh the same: of the items that one model
  alone gets right, each is one model's or the other's with equal chance;
- else the paired t test over items, by the same standard error.

Neither covers training seeds: both are for these weights of two models, over other items of the same kind.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from seedbed.errors import InputError
from seedbed.eval.scores import Items, influences, standard_error, strata_of, value_of

LEVEL = 0.95
"""Of the interval."""


@dataclass(frozen=True)
class Paired:
    """``b - a`` on the same items."""

    task: str
    subset: str
    metric: str
    difference: float
    stderr: float | None
    """None where a single item, or a stratum of a single one, has no spread to tell it by."""
    low: float | None
    high: float | None
    """None without a standard error, and where the models do not differ on any item."""
    p: float | None
    """None without bounds, but for McNemar's test, which is 1 where no item tells the models apart."""
    test: Literal["McNemar, exact", "paired t"]
    items: int
    only_a: int | None
    """Items that ``a`` alone gets right; None where items are not right or wrong."""
    only_b: int | None


def paired(a: Items, b: Items) -> Paired:
    """The difference ``b - a`` with its test. The items may be in another order.

    Raises InputError where the two are not of the same items: another task, metric, id, stratum or kind of mean.
    """
    b = _in_order_of(a, b)
    spread = influences(b) - influences(a)  # [n]
    difference, error, n = value_of(b) - value_of(a), standard_error(spread, a.strata), len(a.ids)
    low = high = p = None
    if error is not None and error <= 8 * math.ulp(max(map(abs, a.values + b.values))):
        error = 0.0  # of rounding alone, which would give p = 1e-30
    if error:
        freedom = n - len(strata_of(a.strata, n))
        low, high = map(float, stats.t.interval(LEVEL, freedom, difference, error))
        p = float(2 * stats.t.sf(abs(difference) / error, freedom))
    if not _right_or_wrong(a, b):
        return Paired(a.task, a.subset, a.metric, difference, error, low, high, p, "paired t", n, None, None)
    apart = np.subtract(b.values, a.values)  # [n], -1, 0 or 1
    only_a, only_b = int((apart < 0).sum()), int((apart > 0).sum())
    p = float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    return Paired(a.task, a.subset, a.metric, difference, error, low, high, p, "McNemar, exact", n, only_a, only_b)


def _in_order_of(a: Items, b: Items) -> Items:
    """``b`` with its items in the order of those of ``a``."""
    kinds = [(one.task, one.subset, one.metric, one.scale) for one in (a, b)]
    where = f"{a.task}, {a.subset}, {a.metric}"
    if kinds[0] != kinds[1]:
        raise InputError(f"{where}: compared with {b.task}, {b.subset}, {b.metric}; compare scores of one kind")
    places = {item: place for place, item in enumerate(b.ids)}
    lacking = sorted(set(a.ids) ^ set(places))
    if lacking:
        raise InputError(
            f"{where}: the models were scored on other items ({len(a.ids)} and {len(b.ids)}, of which {len(lacking)} "
            f"are not in both, such as {lacking[0]}); score both on the same data with the same limit"
        )
    order = [places[item] for item in a.ids]

    def ordered(values: list | None) -> list | None:
        return None if values is None else [values[place] for place in order]

    strata = ordered(b.strata)
    if strata != a.strata:
        raise InputError(f"{where}: items lie in other parts of the test for one model; score both in the same way")
    values = [b.values[place] for place in order]
    return Items(b.task, b.subset, b.metric, a.ids, values, ordered(b.weights), strata, b.scale)


def _right_or_wrong(a: Items, b: Items) -> bool:
    """Whether all values are 0 or 1 and all items weigh the same."""
    weights = [np.asarray(one.weights) for one in (a, b) if one.weights is not None]
    equal = all(np.allclose(one, one[0], rtol=1e-9, atol=0) for one in weights)
    return a.scale == "mean" and equal and set(a.values) | set(b.values) <= {0, 1}
