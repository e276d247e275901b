"""Quantiles of many positive numbers from counts in bins, which add up over batches and need little memory.

Bins are equal in log2, 32 to an octave, 2.2 % wide (choice): any quantile is found to within that.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

OCTAVE = 32
"""Bins in a factor of two."""
Bins = dict[str, int]
"""Bin -> how many numbers; keys are text, as in JSON: `-inf` holds zeros, `inf` and `nan` what is not finite."""


def bins_of(values: Tensor) -> Bins:
    """Counts of values [N], none of them negative."""
    keys, counts = torch.floor(OCTAVE * values.double().log2()).unique(return_counts=True)
    found: Bins = {}
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        found[f"{key:.0f}"] = found.get(f"{key:.0f}", 0) + count  # unique tells NaNs apart
    return found


def median(bins: Mapping[str, int]) -> float:
    """Of all numbers that were counted: the middle one, of an even number the lower of the two. NaN where one is NaN,
    or there is none."""
    return _quantile(bins, 0.5)


def largest(bins: Mapping[str, int]) -> float:
    """Of all numbers that were counted, at the upper end of its bin; NaN as for `median`."""
    return _quantile(bins, 1.0)


def _quantile(bins: Mapping[str, int], share: float) -> float:
    if not bins or "nan" in bins:
        return float("nan")
    counts = sorted((float(key), count) for key, count in bins.items())
    wanted = share * sum(count for _, count in counts)
    for key, count in counts:
        if count >= wanted:  # as if the numbers of a bin were spread evenly over it
            return 2 ** ((key + wanted / count) / OCTAVE)
        wanted -= count
    raise AssertionError("the last bin reaches every share")
