"""Where a knob of a study, such as gamma, has its lowest loss, and whether that moves with width."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.polynomial import Polynomial
from scipy import stats
from scipy.optimize import fminbound

from seedbed.study.statistics import LEVEL, Difference, holm, paired, per_doubling

Losses = Mapping[int, Mapping[float, float]]
"""Final loss by seed and value of the knob, in nats per token; what is missing was not run or has no loss."""

POINTS = 5
"""Of a curve: those nearest to the lowest."""


@dataclass(frozen=True)
class Optimum:
    at: float | None
    """Where the curve through the mean losses is lowest."""
    low: float | None
    """Bounds of the interval; None where the losses set none on that side, or with a single seed."""
    high: float | None
    seeds: tuple[int, ...]
    by_seed: tuple[float, ...]
    """Of each seed: one Newton step from ``at`` with the seed's slope and the mean curvature. Their mean is ``at``."""
    points: tuple[float, ...]
    """Values of the knob that the curves go through."""
    reason: str
    """Why there is no optimum or a bound is missing; empty where all is there."""
    notes: tuple[str, ...]
    """What was left out."""


@dataclass(frozen=True)
class Pair:
    """Of two widths: how far the optimum moves from the first to the second, paired over seeds."""

    narrow: float
    wide: float
    moved: Difference
    p_holm: float | None
    """Corrected for the number of pairs."""


@dataclass(frozen=True)
class Movement:
    slope: Difference | None
    """Of the optimum with a doubling of width: the mean over seeds of each one's slope over ``log2 width``."""
    pairs: tuple[Pair, ...]
    widths: tuple[float, ...]
    """Those with an optimum that has both bounds."""
    reason: str
    """Why widths are missing or there is no slope; empty where all is there."""


def optimum(losses: Losses) -> Optimum:
    """Where the loss is lowest over the knob, with a 95 % interval over seeds.

    Each seed's curve is the polynomial through its losses at the five points around the lowest of the mean curve. The
    optimum is where the mean of the curves is lowest there, and the interval is the values at which a t test over seeds
    does not tell their slope from zero: so it needs no estimate of the curvature, and says so where the losses do not
    bound the optimum.

    (choice) In simulated studies of 3 seeds it covers 94 to 96 %, also of curves that are skewed, or flat at their
    lowest and steep two values away. Of skewed ones the vertex of each seed's parabola through three points covers
    82 % and that through five next to nothing; cubics through five are a third narrower, and cover 70 to 95 %. Where
    noise is as large as what the curve falls by from value to value, half the studies have no bounds, and 91 % cover.

    A lowest point at the edge of the grid is no optimum: the reason says at which edge. Raises ValueError for no seed,
    fewer than three values of the knob that all seeds share, and losses that are not finite.
    """
    seeds = tuple(sorted(losses))
    common = sorted(set.intersection(*(set(losses[seed]) for seed in seeds))) if seeds else []
    if len(common) < 3:
        raise ValueError(f"{len(seeds)} seeds share {len(common)} values of the knob; an optimum takes three")
    x = np.array(common, dtype=float)  # [K]
    rows = np.array([[losses[seed][value] for value in common] for seed in seeds])  # [S, K]
    if not np.isfinite(rows).all():
        raise ValueError("a loss that is not finite")
    rare = sorted({value for seed in seeds for value in losses[seed]} - set(common))
    notes = (f"values {rare} left out: not every seed has a loss there",) if rare else ()
    lowest = int(rows.mean(0).argmin())
    if lowest in (0, len(x) - 1):
        side = f"the {'last' if lowest else 'first'} value{' that every seed has' if rare else ''}"
        reason = f"at the edge: the mean loss is lowest at {x[lowest]:g}, {side}"
        return Optimum(None, None, None, seeds, (), (), reason, notes)
    start = min(max(0, lowest - POINTS // 2), max(0, len(x) - POINTS))
    near, rows = x[start : start + POINTS], rows[:, start : start + POINTS]
    mean, *curves = (Polynomial.fit(near, row, len(near) - 1) for row in (rows.mean(0), *rows))
    around = x[lowest - 1], x[lowest + 1]  # the curve passes through the point between, so it has a minimum inside
    at, *_ = fminbound(mean, *around, xtol=1e-9, full_output=True)
    slope, slopes = mean.deriv(), [curve.deriv() for curve in curves]
    by_seed = tuple(float(at - one(at) / slope.deriv()(at)) for one in slopes)
    low, high, reason = _bounds(slopes, slope, by_seed, near)
    return Optimum(float(at), low, high, seeds, by_seed, tuple(near.tolist()), reason, notes)


def movement(optima: Mapping[float, Optimum]) -> Movement:
    """Whether the optimum moves with width, from the optima by width: differences of pairs of widths and the change
    with a doubling of width, over the seeds that all have.

    Only optima with both bounds are used: without them the seeds' values have no well-defined spread. Raises ValueError
    where no two widths share a seed.
    """
    widths = sorted(width for width, one in optima.items() if one.low is not None and one.high is not None)
    missing = sorted(optima.keys() - set(widths))
    reasons = [f"{width:g}: {optima[width].reason}" for width in missing]
    if len(widths) < 2:
        return Movement(None, (), tuple(widths), "; ".join(["fewer than two widths have a bounded optimum", *reasons]))
    seeds = sorted(set.intersection(*(set(optima[width].seeds) for width in widths)))
    if not seeds:
        raise ValueError("widths that share no seed")
    found = {}
    for width in widths:
        of = dict(zip(optima[width].seeds, optima[width].by_seed, strict=True))
        found[width] = [of[seed] for seed in seeds]
    moved = [(a, b, paired(found[a], found[b])) for a, b in combinations(widths, 2)]
    known = [one.p for _, _, one in moved if one.p is not None]
    corrected = holm(known) if len(known) == len(moved) else [None] * len(moved)
    pairs = tuple(Pair(a, b, one, p) for (a, b, one), p in zip(moved, corrected, strict=True))
    slope = per_doubling(widths, np.transpose([found[width] for width in widths]).tolist())
    return Movement(slope, pairs, tuple(widths), "; ".join(reasons))


def _bounds(
    slopes: list[Polynomial], slope: Polynomial, by_seed: tuple[float, ...], near: np.ndarray
) -> tuple[float | None, float | None, str]:
    """Nearest values on either side of the optimum, in the range of ``near``, where ``slope = t * standard error``, and
    why one is missing.
    """
    n = len(slopes)
    if n == 1:
        return None, None, "one seed has no interval"
    if np.ptp(by_seed) <= 1e-9 * np.ptp(near):
        return None, None, "the seeds do not differ"
    at = np.mean(by_seed)
    variance = sum(((one - slope) ** 2 for one in slopes), Polynomial([0], slope.domain)) / (n - 1)
    met = slope**2 - stats.t.ppf((1 + LEVEL) / 2, n - 1) ** 2 / n * variance
    roots = met.trim(1e-8 * np.abs(met.coef).max()).roots()  # a leading term of rounding alone would spoil the others
    ends = roots[np.isreal(roots)].real
    low = max((float(end) for end in ends if near[0] <= end < at), default=None)
    high = min((float(end) for end in ends if at < end <= near[-1]), default=None)
    sides = " or ".join(side for side, bound in (("below", low), ("above", high)) if bound is None)
    return low, high, f"the losses do not bound the optimum from {sides}" if sides else ""
