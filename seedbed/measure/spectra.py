"""What the entries and the singular values of one matrix say.

Everything is computed in float64, whatever the weights are stored in: the square of the smallest or largest bf16
number is far inside its range. Where a matrix has no honest answer the field is None and ``problem`` says why.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

SCALE_FREE = ("stable_rank", "entropy_rank", "er90", "er95", "er99", "row_cosine")  # beside the condition number
COSINE_ROWS = 2048  # the pairs of a 100,000-row table would cost more than its singular values


@dataclass(frozen=True)
class MatrixStats:
    """Measures of a matrix W (m x n) with singular values s_1 >= ... >= s_r, r = min(m, n).

    A field is None where ``problem`` says why there is no number: all of them when W is not finite, the spectral ones
    when W is zero or has a single row or column.
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
    row_cosine: float | None = None  # mean |cos| over pairs of rows (S0)


def matrix_stats(weight: Tensor) -> MatrixStats:
    """All measures of ``weight`` [m, n], of any float dtype and device; never raises on what it holds."""
    shape = tuple(weight.shape)
    if weight.ndim != 2:
        return MatrixStats(shape, problem=f"not a matrix: {weight.ndim} dimensions")
    if weight.numel() == 0:
        return MatrixStats(shape, problem="no entries")
    matrix = weight.detach().to(torch.float64)  # [m, n]
    bad = int(matrix.numel() - torch.isfinite(matrix).sum())
    if bad:
        return MatrixStats(shape, problem=f"{bad} of {matrix.numel()} entries are NaN or infinite")
    norm = float(torch.linalg.vector_norm(matrix))
    plain = MatrixStats(
        shape,
        mean=float(matrix.mean()),
        std=float(matrix.std(correction=0)),
        min=float(matrix.min()),
        max=float(matrix.max()),
        rms=norm / math.sqrt(matrix.numel()),
        frobenius=norm,
    )
    if norm == 0:
        return replace(plain, problem="all entries are zero")
    if 1 in shape:
        return replace(plain, problem="a single row or column: rank measures are 1 by definition")
    values = singular_values(matrix)
    return replace(
        plain,
        spectral=float(values[0]),
        stable_rank=stable_rank(values),
        entropy_rank=entropy_rank(values),
        er90=energy_rank(values, 0.90),
        er95=energy_rank(values, 0.95),
        er99=energy_rank(values, 0.99),
        condition=condition_number(values, max(shape)),
        row_cosine=row_cosine(matrix),
    )


def singular_values(matrix: Tensor) -> Tensor:
    """Singular values [r] of a finite ``matrix`` [m, n], descending, float64.

    Through the triangular factor of the long side: the values are the same and a tall table costs half.
    """
    tall = matrix.to(torch.float64)
    tall = tall if tall.shape[0] >= tall.shape[1] else tall.T
    if tall.shape[0] > tall.shape[1]:
        tall = torch.linalg.qr(tall, mode="r").R  # [r, r]
    return torch.linalg.svdvals(tall)


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


def row_cosine(matrix: Tensor, max_rows: int = COSINE_ROWS) -> float | None:
    """Mean absolute cosine over all pairs of different rows of ``matrix`` [m, n] (S0, fig. 4).

    Zero rows have no direction and are left out; None when fewer than two rows are left. Above ``max_rows`` rows,
    that many evenly spaced ones stand for all (choice).
    """
    rows = matrix.to(torch.float64)
    if len(rows) > max_rows:
        rows = rows[torch.linspace(0, len(rows) - 1, max_rows, device=rows.device).round().long()]
    norms = torch.linalg.vector_norm(rows, dim=1)
    rows = rows[norms > 0] / norms[norms > 0, None]  # [k, n], unit rows
    k = len(rows)
    if k < 2:
        return None
    total = float((rows @ rows.T).abs().sum()) - k
    return total / (k * (k - 1))


@lru_cache(maxsize=256)
def gaussian_stats(m: int, n: int) -> MatrixStats:
    """The same measures of an m x n matrix of independent N(0, 1) entries, from a generator of its own.

    The yardstick that stands beside effective ranks and condition numbers: most of what they say about a weight is
    the shape of the matrix. Only the scale-free fields compare. Up to a million entries, means of eight draws (the
    median of condition numbers, whose mean over square matrices diverges); above, where draws differ little, one.
    """
    generator = torch.Generator().manual_seed(m * 1_000_003 + n)
    count = 8 if m * n <= 2**20 else 1
    draws = [matrix_stats(torch.randn(m, n, generator=generator, dtype=torch.float64)) for _ in range(count)]
    if draws[0].problem is not None:
        return draws[0]
    averages: dict[str, Any] = {field: fmean(getattr(one, field) for one in draws) for field in SCALE_FREE}
    return replace(draws[0], **averages, condition=median(one.condition for one in draws if one.condition))
