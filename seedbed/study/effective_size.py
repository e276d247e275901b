"""Effective model size: the size at which the base would reach the loss of another arm (S0; science section 5).

For the arm's loss at size N, N' is where ``L_base(N') = L_arm(N)``; the gain is ``N'/N - 1``. Sizes are parameter
counts; whether with or without embeddings is the caller's, who asks once for each. Everything is done for each seed by
itself, over arms that share it, and the seeds give a t interval of ``ln(N'/N)``.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, fminbound, nnls

from seedbed.study.statistics import LEVEL, Difference, from_zero, per_doubling

Losses = Mapping[int, Mapping[float, float]]
"""Final loss by seed and size, in nats per token; what is missing was not run or has no loss."""

LEAST_SIZES = 5
"""For a fit; of fewer, losses are interpolated."""
EXPONENTS = np.geomspace(0.01, 2, 40)
"""Where the search for the exponent starts; one at either end is not determined by the data."""


@dataclass(frozen=True)
class Fit:
    """``L(N) = floor + scale * (N / smallest)^-exponent`` of one seed: floor and exponent shared by both arms."""

    seed: int
    floor: float
    exponent: float
    base_scale: float
    """Loss above the floor at the smallest size."""
    arm_scale: float
    base_left: tuple[float, ...]
    """Loss minus fit at each size, in nats."""
    arm_left: tuple[float, ...]


@dataclass(frozen=True)
class Gain:
    """Of one size; geometric mean over seeds."""

    size: float
    same_as: float | None
    """N': the size of the base with the same loss."""
    gain: float | None
    """N'/N - 1."""
    low: float | None
    high: float | None
    p: float | None
    """Of no gain; the t test over seeds of ln(N'/N)."""
    n: int
    """Seeds."""
    reason: str
    """Why there is no number; empty where there is one."""


@dataclass(frozen=True)
class EffectiveSize:
    method: str
    """``fit`` or ``interpolation``."""
    gains: tuple[Gain, ...]
    """One for each size, rising. Under a fit they are one ratio: its shared exponent has no other."""
    fits: tuple[Fit, ...]
    """One for each seed; none where losses are interpolated."""
    trend: Difference | None
    """Change with a doubling of N of what the fits leave of the gap, arm minus base, tested over seeds: far from zero
    where the gap changes with size as one ratio at all sizes does not. None where losses are interpolated.
    """
    notes: tuple[str, ...]
    """What was left out, and what about the fits calls for caution."""


def effective_size(base: Losses, arm: Losses) -> EffectiveSize:
    """Gain of ``arm`` over ``base`` at each size that all seeds of both have.

    On five sizes or more, ``L(N) = E + A N^-alpha`` is fitted for each seed to both arms, E and alpha shared, by least
    squares. On fewer, the base's log loss is interpolated over log N: the parabola through the three sizes nearest, a
    line through two. (A line through more bends too little: with four times between sizes it put the gain 5 % too high,
    and its interval covered 63 %.) Nothing is extrapolated: a size whose N' is outside the sizes has no number.

    Raises ValueError where there is no common seed, or fewer than two common sizes, and for a loss that is not positive
    and finite.
    """
    seeds = sorted(base.keys() & arm.keys())
    runs = [losses for seed in seeds for losses in (base[seed], arm[seed])]
    sizes = sorted(set.intersection(*(set(losses) for losses in runs))) if runs else []
    if len(sizes) < 2:
        raise ValueError(f"{len(seeds)} common seeds with {len(sizes)} common sizes; a comparison takes 1 and 2")
    n = np.array(sizes, dtype=float)  # [K]
    base_losses, arm_losses = (np.array([[one[seed][size] for size in sizes] for seed in seeds]) for one in (base, arm))
    if not (np.isfinite([base_losses, arm_losses]).all() and min(base_losses.min(), arm_losses.min()) > 0):
        raise ValueError("a loss that is not positive and finite")
    notes = _left_out(base, arm, seeds, sizes)
    if len(sizes) < LEAST_SIZES:
        gains = tuple(_interpolated(n, base_losses, arm_losses[:, at], at) for at in range(len(n)))
        notes.append(f"interpolated: {len(sizes)} sizes, a fit takes {LEAST_SIZES}")
        if len(sizes) == 2:
            notes.append("a line between two sizes lies above a curve that bends: gains come out too high")
        return EffectiveSize("interpolation", gains, (), None, tuple(notes))
    fits = [_fit(seed, n, b, a) for seed, b, a in zip(seeds, base_losses, arm_losses, strict=True)]
    found = tuple(fit for fit in fits if fit)
    if failed := [seed for seed, fit in zip(seeds, fits, strict=True) if not fit]:
        reason = f"the exponent of seeds {failed} is not determined by the losses"
        return EffectiveSize("fit", tuple(_none(size, len(seeds), reason) for size in sizes), found, None, tuple(notes))
    if bound := [fit.seed for fit in found if fit.floor == 0]:
        notes.append(f"the floor E of seeds {bound} is at its bound, 0: the fit has no curvature to tell it from")
    trend = per_doubling(sizes, [np.subtract(fit.arm_left, fit.base_left).tolist() for fit in found])
    if trend.p is not None and trend.p < 1 - LEVEL:
        notes.append("the gap changes with size as one ratio does not (p below 0.05): no single gain describes it")
    ratio = from_zero([math.log(fit.base_scale / fit.arm_scale) / fit.exponent for fit in found])
    return EffectiveSize("fit", tuple(_gain(size, ratio, n) for size in sizes), found, trend, tuple(notes))


def _fit(seed: int, n: np.ndarray, base: np.ndarray, arm: np.ndarray) -> Fit | None:
    """Least squares over ``base`` and ``arm`` [K] at sizes ``n`` [K]; None where the exponent has no inner optimum.

    For a given exponent the rest is linear and has one optimum, with floor and scales not negative. So the search is
    over the exponent alone, first on a grid: it has no starting point that could be the wrong one.
    """
    count = len(n)
    losses = np.concatenate([base, arm])  # [2K]
    table = np.zeros((2 * count, 3))
    table[:, 0] = 1

    def linear(exponent: float) -> tuple[np.ndarray, float]:
        table[:count, 1] = table[count:, 2] = (n / n[0]) ** -exponent
        return nnls(table, losses)

    rough = int(np.argmin([linear(exponent)[1] for exponent in EXPONENTS]))
    if rough in (0, len(EXPONENTS) - 1):
        return None
    around = EXPONENTS[rough - 1], EXPONENTS[rough + 1]
    exponent, _, stuck, _ = fminbound(lambda one: linear(one)[1], *around, full_output=True)
    found, _ = linear(float(exponent))
    floor, base_scale, arm_scale = found.tolist()
    if stuck or min(base_scale, arm_scale) <= 0:
        return None
    left = (losses - table @ found).tolist()  # the table is that of the exponent
    return Fit(seed, floor, float(exponent), base_scale, arm_scale, tuple(left[:count]), tuple(left[count:]))


def _interpolated(n: np.ndarray, base: np.ndarray, losses: np.ndarray, at: int) -> Gain:
    """Gain at size ``n[at]`` from the arm's ``losses`` [S] there and the base's [S, K]."""
    found = [same_loss(np.log(n), np.log(curve), math.log(loss)) for curve, loss in zip(base, losses, strict=True)]
    reasons = [one for one in found if isinstance(one, str)]
    if reasons:
        return _none(n[at], len(found), by_seeds(reasons, len(found)))
    return _gain(n[at], from_zero([one - math.log(n[at]) for one in found if not isinstance(one, str)]), n)


def same_loss(
    sizes: np.ndarray, losses: np.ndarray, loss: float, whose: str = "baseline's", of: str = "size"
) -> float | str:
    """Where the curve through ``losses`` [K] at ``sizes`` [K] is ``loss``, all in logarithms, or why it is nowhere;
    ``whose`` and ``of`` are what the reason calls the curve and a size.

    Between two sizes it is the parabola through the three nearest, a line where there are two.
    """
    above = losses - loss  # [K]
    if above[-1] > 0 or above[0] < 0:
        return f"better than the {whose} largest {of}" if above[-1] > 0 else f"worse than the {whose} smallest {of}"
    larger = above > 0  # [K]
    larger[0] = True  # also where it is the loss itself
    crossings = np.flatnonzero(np.diff(larger))
    if len(crossings) != 1:
        return f"the {whose} loss is this at more than one {of}"
    left = int(crossings[0])
    near = np.argsort(np.abs(sizes - sizes[left : left + 2].mean()), kind="stable")[:3]
    curve = np.polynomial.Polynomial.fit(sizes[near], above[near], len(near) - 1)
    low, high = sizes[left], sizes[left + 1]
    if curve(low) <= 0 or curve(high) >= 0:  # it passes both points, which are on either side of zero or at it
        return float(low if curve(low) <= 0 else high)
    found: Any = brentq(curve, low, high)  # the roots of a parabola that is nearly a line lose most digits
    return float(found)


def by_seeds(reasons: Sequence[str], seeds: int) -> str:
    """Why there is no number, in a line: each reason, with how many of so many seeds it is that of."""
    return "; ".join(f"{times} of {seeds} seeds: {reason}" for reason, times in Counter(reasons).most_common())


def _gain(size: float, ratio: Difference, sizes: np.ndarray) -> Gain:
    """From ``ln(N'/N)`` over seeds; without a number where N' is outside ``sizes``."""
    same_as = size * math.exp(ratio.mean)
    slack = 1 + 1e-9
    if not sizes[0] / slack <= same_as <= sizes[-1] * slack:
        reason = f"N' would be {same_as:.4g}, outside the sizes {sizes[0]:.4g} to {sizes[-1]:.4g}"
        return _none(size, ratio.n, reason)
    low, high = (None if bound is None else math.expm1(bound) for bound in (ratio.low, ratio.high))
    return Gain(float(size), same_as, math.expm1(ratio.mean), low, high, ratio.p, ratio.n, "")


def _none(size: float, seeds: int, reason: str) -> Gain:
    return Gain(float(size), None, None, None, None, None, seeds, reason)


def _left_out(base: Losses, arm: Losses, seeds: list[int], sizes: list[float]) -> list[str]:
    """Seeds that one arm lacks, and sizes that a run lacks."""
    notes = []
    if alone := sorted(base.keys() ^ arm.keys()):
        notes.append(f"seeds {alone} left out: one arm has no run of them")
    every = {size for losses in (base, arm) for seed in seeds for size in losses[seed]}
    if rare := sorted(every - set(sizes)):
        notes.append(f"sizes {[f'{size:g}' for size in rare]} left out: not every seed of both arms has a loss there")
    return notes
