"""Learning curves over seeds: bands, tokens to reach a loss, slopes at the end.

A curve is a sequence of (tokens, loss) pairs of one run, tokens rising; losses are held-out ones in nats per token.
Between two points a curve is a straight line in the logarithm of tokens (choice).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seedbed.study.effective_size import by_seeds, same_loss
from seedbed.study.statistics import Interval, from_zero, mean_interval

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Band:
    """Mean of curves with a t interval over seeds at each token count: pointwise, not for the whole curve at once."""

    tokens: tuple[float, ...]
    intervals: tuple[Interval, ...]
    interpolated: bool
    """Whether the runs evaluated at different token counts, so that values between theirs were filled in."""


@dataclass(frozen=True)
class TokensToLoss:
    """How many tokens run B needs to reach the final loss of run A."""

    target: float
    """The final loss of A."""
    tokens_a: float
    """Where A first reaches it: before its end if its loss rose again, so that a run against itself has ratio 1."""
    tokens_b: float | None
    ratio: float | None
    """tokens_b / tokens_a: below 1 where B learns faster."""
    reason: str
    """Why there is no ratio; empty where there is one."""


@dataclass(frozen=True)
class TokensRatio:
    """Geometric mean over seeds of ratios of tokens, with a t interval and test of their logarithm against 0."""

    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    reason: str
    """Why there is no ratio; empty where there is one."""


def band(curves: Sequence[Curve]) -> Band:
    """Mean and t interval of the curves of one arm, a curve a seed.

    Runs that evaluated at the same token counts are averaged as they are. Otherwise every count of any of them that
    lies in the range of all is taken, and values between are interpolated; counts of 0 have no logarithm and are left
    out. Raises ValueError for no curve, a curve that is not one, and where no range is common.
    """
    if not curves:
        raise ValueError("a band of no curves")
    every = [_arrays(curve) for curve in curves]
    first = every[0][0]
    if all(np.array_equal(tokens, first) for tokens, _ in every):
        rows = np.stack([losses for _, losses in every])  # [S, K]
        return Band(tuple(first.tolist()), tuple(mean_interval(values) for values in rows.T.tolist()), False)
    every = [(tokens[tokens > 0], losses[tokens > 0]) for tokens, losses in every]
    low, high = max(tokens[0] for tokens, _ in every), min(tokens[-1] for tokens, _ in every)
    if low > high:
        raise ValueError(f"curves have no token count in common: one starts at {low:g}, one ends at {high:g}")
    common = np.unique(np.concatenate([tokens for tokens, _ in every]))
    common = common[(common >= low) & (common <= high)]
    rows = np.stack([np.interp(np.log(common), np.log(tokens), losses) for tokens, losses in every])  # [S, K]
    return Band(tuple(common.tolist()), tuple(mean_interval(values) for values in rows.T.tolist()), True)


def tokens_to_loss(curve_a: Curve, curve_b: Curve) -> TokensToLoss:
    """How many tokens B needs to reach A's final loss: the first crossing from above, without smoothing.

    Both are runs of one seed. A point before the end of a run whose rate decays stands above what a shorter run would
    have reached, so with decaying rates the ratio of a better B is too near to 1: ends_to_loss has no such fault.
    Raises ValueError for a curve that is not one.
    """
    target = float(curve_a[-1][1])
    tokens_a, _ = _first_at(curve_a, target)
    if tokens_a is None:  # its first point is its lowest: it reaches its final loss at its end
        tokens_a = float(curve_a[-1][0])
    tokens_b, reason = _first_at(curve_b, target)
    return TokensToLoss(target, tokens_a, tokens_b, None if tokens_b is None else tokens_b / tokens_a, reason)


def ends_to_loss(ends_a: Curve, ends_b: Curve) -> TokensToLoss:
    """How many tokens B needs to reach A's final loss, by the ends of runs of several budgets, each with its own
    cooldown (S3): between budgets as in same_loss, and never outside them.

    Raises ValueError for a curve that is not one, and for fewer than two budgets.
    """
    tokens, losses = _arrays(ends_b)
    if len(tokens) < 2 or len(ends_a) < 2:
        raise ValueError("tokens to a loss by the ends of runs take two budgets")
    tokens_a, target = (float(number) for number in ends_a[-1])
    at = same_loss(np.log(tokens), np.log(losses), math.log(target), "learner's", "budget")
    if isinstance(at, str):
        return TokensToLoss(target, tokens_a, None, None, at)
    return TokensToLoss(target, tokens_a, math.exp(at), math.exp(at) / tokens_a, "")


def tokens_ratio(found: Sequence[TokensToLoss]) -> TokensRatio:
    """Mean ratio over seeds, ``found`` being the answer of each. None where one seed has no ratio: the mean of those
    that reached the loss would leave out the slowest.

    Raises ValueError for no seed.
    """
    missing = [one.reason for one in found if one.ratio is None]
    if missing:
        return TokensRatio(None, None, None, None, len(found), by_seeds(missing, len(found)))
    log = from_zero([math.log(one.ratio) for one in found if one.ratio is not None])
    low, high = (None if bound is None else math.exp(bound) for bound in (log.low, log.high))
    return TokensRatio(math.exp(log.mean), low, high, log.p, log.n, "")


def end_slope(curve: Curve) -> float | None:
    """Change of the loss with a doubling of tokens at the end of a run: the least-squares slope over ``log2 tokens`` of
    the points in the last half of the tokens (choice). None where those are fewer than three. A cooldown makes it
    steeper than a longer run would be: between runs of two budgets there is no such fault.

    Raises ValueError for a curve that is not one.
    """
    tokens, losses = _arrays(curve)
    late = (tokens >= tokens[-1] / 2) & (tokens > 0)
    return float(np.polyfit(np.log2(tokens[late]), losses[late], 1)[0]) if late.sum() >= 3 else None


def _first_at(curve: Curve, target: float) -> tuple[float | None, str]:
    """Where a curve first falls to ``target``, or why there is no such place."""
    tokens, losses = _arrays(curve)
    tokens, losses = tokens[tokens > 0], losses[tokens > 0]
    under = np.flatnonzero(losses <= target)
    if not len(under):
        return None, f"lowest loss {losses.min():.4g} in {tokens[-1]:,.0f} tokens, above {target:.4g}"
    at = int(under[0])
    if at == 0 and losses[0] < target:
        return None, f"already at {losses[0]:.4g} at its first point, {tokens[0]:,.0f} tokens, below {target:.4g}"
    if at == 0:
        return float(tokens[0]), ""
    share = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(tokens[at - 1] * (tokens[at] / tokens[at - 1]) ** share), ""


def _arrays(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and losses, [K] each."""
    table = np.asarray(curve, dtype=float)  # [K, 2]
    if table.ndim != 2 or table.shape[1] != 2 or not np.isfinite(table).all():
        raise ValueError("a curve is a sequence of finite (tokens, loss) pairs")
    tokens, losses = table.T
    if (np.diff(tokens) <= 0).any() or tokens[0] < 0 or tokens[-1] == 0:
        raise ValueError("the tokens of a curve rise")
    return tokens, losses
