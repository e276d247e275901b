"""Instruction-following difficulty (S1 appendix A; Li et al. 2024): what an instruction does for its response.

    IFD = L_cond / L_uncond

Both are nats a response token, over the same tokens: with the instruction before them, and without it. Above 1, the
instruction makes the response less likely.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from torch import Tensor

from seedbed.measure.losses import tail_sums

FEWEST = 3
"""Pairs below which a correlation is not computed."""


@dataclass(frozen=True)
class Summary:
    """Over records, each counted once, however long. NaN where there are none; ``std`` is that of a sample (n - 1)."""

    n: int
    mean: float
    std: float
    lowest: float
    q25: float
    median: float
    q75: float
    highest: float
    above_one: float
    """Share of values above 1."""


@dataclass(frozen=True)
class Correlation:
    """Of n pairs, with two-sided p-values; None where there are fewer than 3 pairs, or one side is constant."""

    n: int
    pearson: float | None
    pearson_p: float | None
    spearman: float | None
    spearman_p: float | None


def tail_means(losses: Tensor, doc_ids: Tensor, counts: Tensor) -> Tensor:
    """Mean of the last ``counts`` [B] losses of each row of losses [B, T], as [B] float64.

    Rows are one document each; doc_ids [B, T] are negative where a row is padding, on either side.
    """
    return tail_sums(losses, doc_ids, counts) / counts


def summary(values: Sequence[float]) -> Summary:
    """Summary statistics; quartiles are linear between values, as numpy has them."""
    found = np.asarray(values, dtype=np.float64)
    n = len(found)
    if n == 0:
        return Summary(0, *(math.nan,) * 8)
    std = float(found.std(ddof=1)) if n > 1 else math.nan
    lowest, q25, median, q75, highest = np.quantile(found, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return Summary(n, float(found.mean()), std, lowest, q25, median, q75, highest, float((found > 1).mean()))


def correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson's r and Spearman's rho, with the p-values of scipy.stats: t-distributed under independent pairs."""
    n = len(x)
    if n < FEWEST or min(x) == max(x) or min(y) == max(y):
        return Correlation(n, None, None, None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        found: list[Any] = [stats.pearsonr(x, y), stats.spearmanr(x, y)]
    return Correlation(n, *(float(value) for one in found for value in (one.statistic, one.pvalue)))


def running_median(x: Sequence[float], y: Sequence[float], window: int) -> tuple[np.ndarray, np.ndarray]:
    """Medians of x and of y over each ``window`` neighbours in the order of x, both [n - window + 1]; empty where
    there are fewer than ``window`` pairs.
    """
    if len(x) < window:
        return np.empty(0), np.empty(0)
    order = np.argsort(x, kind="stable")
    sorted_x, sorted_y = (np.asarray(values, dtype=np.float64)[order] for values in (x, y))
    windows = np.lib.stride_tricks.sliding_window_view
    return np.median(windows(sorted_x, window), axis=1), np.median(windows(sorted_y, window), axis=1)
