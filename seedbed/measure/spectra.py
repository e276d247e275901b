"""What the entries and the singular values of one matrix say.

Everything is computed in float64, whatever the weights are stored in: the square of the smallest or largest bf16
number is far inside its range. Where a matrix has no honest answer the field is None and ``problem`` says why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from seedbed.measure.cosine import MEAN_ROWS, mean_cosine, row_cosine
from seedbed.measure.gaussian import gaussian_cosine, gaussian_spectra
from seedbed.measure.singular import float64_blocks, gram_of, power_of_two, singular_values

SCALE_FREE = ("stable_rank", "entropy_rank", "er90", "er95", "er99")  # beside condition number and row cosine
SINGLE = "a single row or column: ranks say nothing"


@dataclass(frozen=True)
class MatrixStats:
    """Measures of a matrix W (m x n) with singular values s_1 >= ... >= s_r, r = min(m, n).

    A field is None where ``problem`` says why there is no number: all of them when W is not finite or not of floating
    point, the spectral ones when W is zero; of a single row or column those after ``spectral``, which is its norm.
    """

    shape: tuple[int, ...]
    problem: str | None = None
    mean: float | None = None
    std: float | None = None  # around the mean, over all entries
    min: float | None = None
    max: float | None = None
    rms: float | None = None  # ||W||_F / sqrt(mn)
    frobenius: float | None = None
    spectral: float | None = None  # s_1
    stable_rank: float | None = None  # ||W||_F^2 / s_1^2 (S0)
    entropy_rank: float | None = None  # exp(-sum p log p), p = s / sum s (S2)
    er90: float | None = None  # share of r that holds 90 % of the energy (S1)
    er95: float | None = None
    er99: float | None = None
    condition: float | None = None  # s_1 / s_r; inf when singular (S1)
    row_cosine: float | None = None  # mean |cos| over pairs of rows that are not zero (S0)
    zero_rows: int = 0  # of all m: without a direction; not counted where W is no finite matrix


def matrix_stats(weight: Tensor) -> MatrixStats:
    """All measures of ``weight`` [m, n], of any float dtype and device; never raises on what it holds."""
    return spectrum(weight)[0]


def spectrum(weight: Tensor) -> tuple[MatrixStats, Tensor | None]:
    """All measures of ``weight`` [m, n], and the singular values [r] they are of: descending, float64, on its device.

    The values are None where there is a problem. Beside the weight, memory goes to matrices [r, r] in float64, to
    ``cosine.MEAN_ROWS`` rows and to blocks of a fixed size, or of one row where that is longer: of few
    rows with millions of columns each is one block.
    """
    stats = _entries(weight)
    if stats.problem is not None:
        return stats, None
    gram = gram_of(weight)
    values = singular_values(weight, gram)
    rows, columns = weight.shape
    # the Gram matrix of a wide matrix has the products of its rows
    cosine = mean_cosine(gram.lower) if rows <= min(columns, MEAN_ROWS) else row_cosine(weight)
    measures = _measures(values, max(weight.shape))
    return replace(stats, spectral=float(values[0]), row_cosine=cosine, **measures), values


def stacked(blocks: Sequence[Tensor]) -> Tensor:
    """``blocks`` [m_i, n] below each other, [sum of m_i, n]; of different types in float64, since torch has no common
    type of fp8 and others, or where one is not floating point in its type: then the whole cannot be measured either.
    """
    if len({block.dtype for block in blocks}) > 1:
        common = next((block.dtype for block in blocks if not block.is_floating_point()), torch.float64)
        blocks = [block.to(common) for block in blocks]
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))


def _entries(weight: Tensor) -> MatrixStats:
    """What the entries say, and what keeps ``weight`` from having spectral measures."""
    shape, matrix = tuple(weight.shape), weight.detach()
    if weight.ndim != 2:
        return MatrixStats(shape, problem=f"not a matrix: {weight.ndim} dimensions")
    if weight.numel() == 0:
        return MatrixStats(shape, problem="no entries")
    if weight.is_complex():
        return MatrixStats(shape, problem="complex entries, of which these measures know nothing")
    if not weight.is_floating_point():
        told = str(weight.dtype).removeprefix("torch.")
        return MatrixStats(shape, problem=f"not floating point but {told}: numbers of a quantiser, not the weights")
    ends, zero_rows = [], 0
    for block in float64_blocks(matrix):
        ends.append(tuple(map(float, block.aminmax())))  # NaN when an entry is
        zero_rows += int((~block[block[:, 0] == 0].any(1)).sum())  # a row whole only where its first entry is zero
    if not all(math.isfinite(end) for both in ends for end in both):
        bad = sum(int((~torch.isfinite(block)).sum()) for block in float64_blocks(matrix))
        return MatrixStats(shape, problem=f"{bad} of {matrix.numel()} entries are NaN or infinite")
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    scale = power_of_two(max(-low, high))
    mean, std = _moments(matrix, scale)
    rms = scale * math.hypot(mean, std)
    problem = "all entries are zero" if rms == 0 else SINGLE if 1 in shape else None
    frobenius = rms * math.sqrt(matrix.numel())
    return MatrixStats(
        shape,
        problem,
        mean=scale * mean,
        std=scale * std,
        min=low,
        max=high,
        rms=rms,
        frobenius=frobenius,
        spectral=frobenius if problem == SINGLE else None,
        zero_rows=zero_rows,
    )


def _moments(matrix: Tensor, scale: float) -> tuple[float, float]:
    """Mean of all entries of ``matrix / scale`` and their standard deviation around it, from those of blocks."""
    moments = []  # floats, since small tensors between large blocks would keep freed memory from being used again
    for block in float64_blocks(matrix, scale):
        mean = block.mean()
        spread = torch.linalg.vector_norm(block - mean)  # torch.var_mean takes six times as long
        moments.append((block.numel() / matrix.numel(), float(mean), float(spread) ** 2 / block.numel()))
    mean = math.fsum(share * part for share, part, _ in moments)
    variance = math.fsum(share * (inside + (part - mean) ** 2) for share, part, inside in moments)
    return mean, math.sqrt(variance)


def _measures(values: Tensor, longest: int) -> dict[str, Any]:
    """Measures by field of the singular ``values`` [r] of a matrix whose longer side is ``longest``."""
    return {
        "stable_rank": stable_rank(values),
        "entropy_rank": entropy_rank(values),
        "er90": energy_rank(values, 0.90),
        "er95": energy_rank(values, 0.95),
        "er99": energy_rank(values, 0.99),
        "condition": condition_number(values, longest),
    }


def stable_rank(values: Tensor) -> float:
    """``||W||_F^2 / ||W||_2^2`` from singular values (S0)."""
    return float((values / values[0]).square().sum())


def entropy_rank(values: Tensor) -> float:
    """``exp(-sum p log p)`` with ``p = s / sum s`` (S2's effective rank)."""
    shares = values / values.sum()
    return float(torch.exp(-torch.special.xlogy(shares, shares).sum()))


def energy_rank(values: Tensor, share: float) -> float:
    """ER@share: the smallest k whose first k squared values reach ``share`` of their sum, divided by r (S1)."""
    energy = (values / values[0]).square().cumsum(0)
    # the slack keeps a tie, such as 9 of 10 equal values at 0.9, from turning on the last bit of a sum
    reached = energy >= share * energy[-1] * (1 - 1e-12)
    return (int(reached.int().argmax()) + 1) / len(values)


def condition_number(values: Tensor, longest: int) -> float:
    """``s_1 / s_r``, infinite when s_r is zero to the precision of the decomposition (S1).

    ``longest`` is max(m, n): the error of a computed singular value is about ``longest * machine epsilon * s_1``.
    """
    noise = longest * torch.finfo(values.dtype).eps * float(values[0])
    return math.inf if float(values[-1]) <= noise else float(values[0] / values[-1])


@lru_cache(maxsize=256)
def gaussian_stats(m: int, n: int) -> MatrixStats:
    """The same measures of an m x n matrix of independent N(0, 1) entries.

    The yardstick that stands beside effective ranks and condition numbers: most of what they say about a weight is
    the shape of the matrix. Only the scale-free fields compare, so only they are filled: means over 8 to 255 drawn
    spectra, by shape; the median of 255 condition numbers, whose mean over square matrices diverges; the mean cosine
    exactly. The draws follow the law of each shape itself and cost a small part of a decomposition, so limits for
    large matrices (Marchenko and Pastur's density, Edelman's law of square condition numbers) are not used: the
    tests hold the draws against them, and against full matrices.
    """
    if min(m, n) < 2:
        return MatrixStats((m, n), problem=SINGLE)
    spectra, ends = gaussian_spectra(max(m, n), min(m, n))
    draws = [_measures(torch.from_numpy(values), max(m, n)) for values in spectra]  # a condition number each, unused
    means: dict[str, Any] = {field: fmean(one[field] for one in draws) for field in SCALE_FREE}
    condition = median(high / low if low else math.inf for high, low in ends.tolist())
    return MatrixStats((m, n), **means, condition=condition, row_cosine=gaussian_cosine(n))
