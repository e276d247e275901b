"""Means and differences over seeds with t intervals, and Holm's correction.

Over few seeds a t interval holds its level where noise is about normal; a percentile bootstrap of 3 seeds covers about
75 %, and a permutation test of 3 pairs cannot go below p = 0.25. A value is a run of one seed, and is finite: a run
that diverged is a row of its own, never a number in a mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
"""Of every interval."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds; bounds are None for a single one, and where all values are equal up to rounding."""

    mean: float
    std: float | None
    """Of the values, not of their mean; over n - 1. None for a single one."""
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """A mean over seeds that is tested against zero; bounds and p as those of Interval."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None
    """Two-sided; None without bounds: without spread over seeds nothing says how far chance reaches."""
    n: int


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of the values of seeds, with its t interval. Raises ValueError for no value or one that is not finite."""
    found = _tested(np.asarray(values, dtype=float), np.max(np.abs(values), initial=0))
    return Interval(found.mean, found.std, found.low, found.high, found.n)


def from_zero(values: Sequence[float]) -> Difference:
    """Mean of the values of seeds, such as slopes or log ratios, with its t interval and t test against zero.

    Raises ValueError for no value or one that is not finite.
    """
    return _tested(np.asarray(values, dtype=float), np.max(np.abs(values), initial=0))


def paired(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Mean of ``b - a`` over seeds by the paired t test; both are in the same order of seeds.

    Raises ValueError for different lengths, no value or one that is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values paired with {len(b)}")
    return _tested(np.subtract(b, a), np.max(np.abs([a, b]), initial=0))


def per_doubling(x: Sequence[float], rows: Sequence[Sequence[float]]) -> Difference:
    """Mean over seeds of how values change with a doubling of ``x``: the least-squares slope over ``log2 x``, for each
    seed by itself.

    ``rows`` [S, K] are the values of each seed at ``x`` [K], such as gaps over model sizes. Raises ValueError for fewer
    than two different x, an x that is not positive, and as from_zero.
    """
    if len(set(x)) < 2 or min(x) <= 0:
        raise ValueError(f"no slope over the logarithms of {list(x)}")
    return _tested(np.polyfit(np.log2(x), np.transpose(rows), 1)[0], np.max(np.abs(rows), initial=0))


def holm(p: Sequence[float]) -> list[float]:
    """p values of a family of comparisons, corrected by Holm's step-down (Holm 1979), in the order given.

    The chance that any true null hypothesis falls under 0.05 is then 5 % at most, whatever their dependence.
    """
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1, np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(order), 0, -1)))
    return corrected.tolist()


def _tested(values: np.ndarray, scale: float) -> Difference:
    """The one-sample t test of ``values`` [S], which are sums of numbers as large as ``scale``."""
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        raise ValueError(f"no mean of {values.tolist()}")
    mean = float(values.mean())
    if n == 1:
        return Difference(mean, None, None, None, None, 1)
    std = float(values.std(ddof=1))
    if std <= 8 * math.ulp(scale):  # rounding alone would give p = 1e-30
        return Difference(mean, 0.0, None, None, None, n)
    error = std / math.sqrt(n)
    low, high = stats.t.interval(LEVEL, n - 1, mean, error)
    return Difference(mean, std, float(low), float(high), float(2 * stats.t.sf(abs(mean) / error, n - 1)), n)
