"""Singular values of one matrix in float64: through its Gram matrix where that is accurate, else by inverse iteration
or directly."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import LinAlgError, eigvalsh, solve_triangular
from scipy.linalg.blas import dsyrk  # pyright: ignore[reportAttributeAccessIssue]
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

BLOCK = 2**20
"""Entries converted to float64 at a time: 8 MB, of which two or three are held beside a table of any length. A longer
row is a block of its own."""

GRAM_LIMIT = 4e-9
"""The least ``(s_r / s_1)^2`` at which the Gram matrix serves, up to r = 1024; above, times r / 1024.

Its eigenvalues carry an error of ``c * eps * s_1^2``, so a singular value s carries ``c/2 * eps * (s_1 / s)^2`` of
itself. The largest c measured was 17 up to r = 1024 and 20,000 rows and 40 at r = 2048, over spectra that are flat,
geometric, linear, clustered or have one large or one small value: 5e-7 at the limit, a condition number of 16,000.
"""

FEW = 64
"""Up to r / FEW values below the limit are found by themselves: 16 of 1024 in two fifths of the time of ``svdvals``."""

JOIN = 1e-5
"""Of the limit: how far the square of such a value may be from the Gram matrix's. The errors of that reach 1e-6."""


class Gram(NamedTuple):
    """Products of the rows (m <= n) or of the columns (m > n) of a matrix."""

    lower: Tensor  # [r, r], of which the lower triangle counts, divided by scale^2
    scale: float


def singular_values(matrix: Tensor, gram: Gram | None = None) -> Tensor:
    """Singular values [r], r = min(m, n), of a finite ``matrix`` [m, n] of any float dtype; descending, float64.

    Each is within 1e-6 of itself of a direct float64 decomposition, or within that decomposition's own error
    ``max(m, n) * eps * s_1`` where it is below it. The eigenvalues of the Gram matrix come first: for 1024 x 1024
    they take half the time of ``svdvals``. Where a few are under ``GRAM_LIMIT``, as in many square matrices, inverse
    iteration on the triangular factor of the long side replaces these. Where more are, or the matrix is singular to
    the last bit, all values are those of a direct decomposition of that factor.

    ``gram`` is that of ``matrix``, for a caller that has it.
    """
    lower, scale = gram if gram is not None else gram_of(matrix)
    squares, tall = _eigenvalues(lower), _tall(matrix)  # [r]
    limit = GRAM_LIMIT * max(1, len(squares) / 1024) * float(squares[0])
    small = int((squares < limit).sum())
    if small == 0:  # also of a zero matrix
        return squares.clamp(min=0).sqrt() * scale
    factor = _triangular(tall, scale)
    if small <= len(squares) // FEW:
        least = _least(factor if len(tall) > len(factor) else torch.linalg.qr(factor, mode="r").R, small)
        if least is not None and bool(((least.square() - squares[-small:]).abs() <= JOIN * limit).all()):
            return torch.cat([squares[:-small].sqrt(), least]) * scale
    return torch.linalg.svdvals(factor) * scale


def gram_of(matrix: Tensor) -> Gram:
    """Products of the vectors along the short side of ``matrix`` [m, n], scaled to stay inside float64's range."""
    tall = _tall(matrix)
    scale = power_of_two(max(abs(float(end)) for block in float64_blocks(tall) for end in block.aminmax()))
    return Gram(lower_gram(tall, scale), scale)


def float64_blocks(matrix: Tensor, scale: float = 1.0) -> Iterator[Tensor]:
    """``matrix`` [m, n] divided by ``scale``, in blocks of rows of about ``BLOCK`` entries, in float64."""
    for rows in matrix.split(max(1, BLOCK // matrix.shape[1])):
        yield rows.to(torch.float64) / scale  # [b, n]


def power_of_two(peak: float) -> float:
    """The power of two in (peak / 2, peak], 1 for 0: dividing by it rounds nothing."""
    return 1.0 if peak == 0 else math.ldexp(1.0, math.frexp(peak)[1] - 1)


def lower_gram(tall: Tensor, scale: float = 1.0) -> Tensor:
    """``tall^T tall / scale^2`` [r, r] of ``tall`` [m, r] in float64; only its lower triangle has meaning."""
    gram = torch.zeros(tall.shape[1], tall.shape[1], dtype=torch.float64, device=tall.device).T  # column by column
    for block in float64_blocks(tall, scale):
        if block.device.type == "cpu":  # half the products
            rows = block.numpy()
            wide = rows.flags.f_contiguous  # neither layout is copied
            dsyrk(1.0, rows if wide else rows.T, beta=1.0, c=gram.numpy(), trans=int(wide), lower=1, overwrite_c=1)
        else:
            gram.addmm_(block.T, block)
    return gram


def _eigenvalues(lower: Tensor) -> Tensor:
    """Eigenvalues [r] of the symmetric matrix with this ``lower`` triangle [r, r], descending."""
    if lower.device.type == "cpu":  # SciPy's LAPACK takes two thirds of the time of torch's
        return torch.from_numpy(eigvalsh(lower.numpy(), check_finite=False)[::-1].copy())
    return torch.linalg.eigvalsh(lower).flip(0)


def _least(factor: Tensor, count: int) -> Tensor | None:
    """The ``count`` smallest singular values of the upper triangular ``factor`` [r, r], descending, or None.

    Square roots of the largest eigenvalues of ``(R^T R)^-1``, by Lanczos iteration (ARPACK) with a start vector that is
    always the same. Triangular solves are backward stable, so the values carry the error of a direct decomposition.
    """
    r = len(factor)
    upper = np.asfortranarray(factor.cpu().numpy())

    def inverse(vector: np.ndarray) -> np.ndarray:
        half = solve_triangular(upper, vector, trans=1, check_finite=False)
        return solve_triangular(upper, half, check_finite=False)  # [r]

    start = np.random.default_rng(0).standard_normal(r)
    operator = LinearOperator((r, r), matvec=inverse, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    try:
        values = eigsh(operator, count, v0=start, return_eigenvectors=False)
    except (LinAlgError, ArpackError):
        return None
    return torch.from_numpy(np.sort(values)).rsqrt().to(factor.device)


def _tall(matrix: Tensor) -> Tensor:
    """``matrix`` [m, n] with its long side first."""
    return matrix.detach() if matrix.shape[0] > matrix.shape[1] else matrix.detach().T


def _triangular(tall: Tensor, scale: float) -> Tensor:
    """R [r, r] of ``tall / scale = Q R``, from block to block of at least r rows; a square matrix is its own."""
    if tall.shape[0] == tall.shape[1]:
        return tall.to(torch.float64) / scale
    factor = torch.empty(0, tall.shape[1], dtype=torch.float64, device=tall.device)
    for rows in tall.split(max(tall.shape[1], BLOCK // tall.shape[1])):
        factor = torch.linalg.qr(torch.cat([factor, rows.to(torch.float64) / scale]), mode="r").R
    return factor
