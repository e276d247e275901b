"""How the entries of weights are distributed, and how a measure runs over depth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import gaussian_kde
from torch import Tensor

SAMPLE = 9973  # prime, so that evenly spaced entries of a matrix of any shape do not fall into one column
REACH = 5  # standard deviations that a density covers at most


@dataclass(frozen=True)
class Density:
    """A kernel estimate of the density of a component's entries (S1's figure of value distributions)."""

    entries: int  # of all matrices together
    sampled: int  # that the estimate is made of
    problem: str | None = None  # why there is no estimate
    bandwidth: float | None = None  # standard deviation of the kernel
    at: tuple[float, ...] = ()  # the values of the entries
    density: tuple[float, ...] = ()  # per unit of the entries


def entry_sample(weight: Tensor, count: int = SAMPLE) -> Tensor:
    """At most ``count`` evenly spaced entries of ``weight``, of any shape and dtype, in float64 [k].

    For a component of several matrices take a sample of each and join them: equal counts weigh each matrix the same.
    """
    entries = weight.detach().flatten()
    if len(entries) > count:
        entries = entries[torch.arange(count, device=entries.device) * len(entries) // count]
    return entries.to(torch.float64).cpu()


def density(sample: Tensor, entries: int, points: int = 201) -> Density:
    """The density of ``sample`` [k] at ``points`` places, with Gaussian kernels and Scott's bandwidth.

    ``entries`` is how many entries the sample stands for. The places reach from the least to the largest value, or
    to ``REACH`` standard deviations from the mean where that is closer; what is beyond is in the estimate and not on
    the figure.
    """
    values = sample.to(torch.float64).numpy()  # [k]
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        return Density(entries, len(values), f"{bad} of {len(values)} sampled entries are NaN or infinite")
    if len(values) < 2 or values.min() == values.max():
        return Density(entries, len(values), "all sampled entries are equal")
    mean, std = values.mean(), values.std(ddof=1)
    # in standard units, so that no scale is out of range
    estimate = gaussian_kde((values - mean) / std, bw_method="scott")
    bandwidth = len(values) ** -0.2  # Scott's
    low = max((values.min() - mean) / std - 3 * bandwidth, -REACH)
    high = min((values.max() - mean) / std + 3 * bandwidth, REACH)
    places = np.linspace(low, high, points)
    return Density(
        entries,
        len(values),
        bandwidth=float(bandwidth * std),
        at=tuple((places * std + mean).tolist()),
        density=tuple((estimate(places) / std).tolist()),
    )


def z_scores(values: Sequence[float]) -> list[float] | None:
    """``(x - mean) / std`` of one model's measure over its layers, std over all of them; None when it is constant.

    Depth trends of models whose measures differ in level or range compare in this form (S2).
    """
    x = np.asarray(values, dtype=float)  # [layers]
    if len(x) < 2 or np.ptp(x) <= 1e-12 * np.abs(x).max():
        return None
    return ((x - x.mean()) / x.std()).tolist()
