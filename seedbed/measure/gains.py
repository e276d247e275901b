"""Gain of one model over another on the same tokens (S0 sections 2.5 and 4.7).

Shapes: N tokens, D documents, C groups of tokens. Losses are in nats; those of model A come first.
"""

from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
LEVEL = 95
"""Per cent of the resampled means that lie in an interval."""
LEAST_DOCUMENTS = 10
"""Of fewer no interval is given: a percentile bootstrap of few covers much less than it says (choice)."""


def probability_gain(loss_a: np.ndarray, loss_b: np.ndarray) -> np.ndarray:
    """``(p_b - p_a) / (p_a + p_b)`` of tokens with probabilities ``exp(-loss)``, from -1 to 1 (science section 5).

    It is ``tanh((loss_a - loss_b) / 2)``, which holds where both probabilities are too small for a float.
    """
    return np.tanh((loss_a - loss_b) / 2)


def difficulty_slope(loss_a: np.ndarray, loss_b: np.ndarray) -> float:
    """Least-squares slope over tokens of the gain ``loss_a - loss_b`` over difficulty, the mean of the two.

    It is ``(Var a - Var b) / (2 Var difficulty)``: what the losses vary by decides it, not which model is better. 0
    where all tokens are equally difficult.
    """
    spread = float(np.var((loss_a + loss_b) / 2))
    return float(np.var(loss_a) - np.var(loss_b)) / (2 * spread) if spread else 0.0


def difficulty_bins(difficulty: np.ndarray, count: int) -> np.ndarray:
    """Which of ``count`` bins each token of ``difficulty`` [N] is in, [N] int64: ranks cut into parts whose sizes
    differ by one at most. Equal values keep their order, so that a bin's bounds may lie within them.

    Raises ValueError where there are fewer tokens than bins.
    """
    if len(difficulty) < count:
        raise ValueError(f"{len(difficulty)} tokens for {count} bins")
    bins = np.empty(len(difficulty), dtype=np.int64)
    bins[np.argsort(difficulty, kind="stable")] = np.arange(len(difficulty)) * count // len(difficulty)
    return bins


def document_sums(values: np.ndarray, documents: np.ndarray, groups: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Sums of ``values`` [N] by document and group, ``shape`` = [D, C], whose numbers ``documents`` and ``groups`` [N]
    are.
    """
    flat = np.bincount(documents * shape[1] + groups, weights=values, minlength=shape[0] * shape[1])
    return flat.reshape(shape)


class Interval(NamedTuple):
    """Bounds of each of C means; NaN where fewer than LEAST_DOCUMENTS have such tokens."""

    low: np.ndarray  # [C]
    high: np.ndarray  # [C]


def bootstrap_means(sums: np.ndarray, counts: np.ndarray, seed: int) -> Interval:
    """Percentile bootstrap over documents of the means ``sums.sum(0) / counts.sum(0)``.

    ``sums`` and ``counts`` [D, C] are of the tokens or bytes of each document in each group: whole documents are drawn
    with replacement, D at a time, RESAMPLES times, the same ones for all groups; groups, such as bins of difficulty,
    stay as they are. A resample without a token of a group says nothing of it.
    """
    documents, groups = sums.shape
    table = np.concatenate([sums, counts], axis=1)  # [D, 2 C]
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [np.bincount(rng.integers(documents, size=documents), minlength=documents) @ table for _ in range(RESAMPLES)]
    )  # [R, 2 C]
    enough = (counts > 0).sum(0) >= LEAST_DOCUMENTS
    means = np.full((RESAMPLES, groups), np.nan)
    np.divide(drawn[:, :groups], drawn[:, groups:], out=means, where=drawn[:, groups:] > 0)
    bounds = np.full((2, groups), np.nan)
    margin = (100 - LEVEL) / 2
    bounds[:, enough] = np.nanpercentile(means[:, enough], [margin, 100 - margin], axis=0)
    return Interval(*bounds)
