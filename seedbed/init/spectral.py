"""Matrices with singular values that were chosen: orthogonal ones, and those of S2's spectral laws."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def _one_thread() -> Iterator[None]:
    """Decompositions sum in an order that depends on the number of threads, and a draw must not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def orthogonal(gaussian: Tensor) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, from a Gaussian matrix [m, ...], by QR with positive diagonal;
    trailing dimensions are taken as one, and the distribution is uniform over such matrices (Saxe et al. 2014)."""
    matrix = gaussian.flatten(1)  # [m, n]
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    q, r = torch.linalg.qr(tall)
    q *= r.diagonal().sign()
    return (q if tall is matrix else q.T).reshape(gaussian.shape).contiguous()


@_one_thread()
def shaped_spectrum(gaussian: Tensor, std: float, decay: float) -> Tensor:
    """``gaussian`` [m, ...] with singular value i of n multiplied by exp(-decay*i/n), i from 0, then scaled such that
    the Frobenius norm is sqrt(numel)*std (S2 section 3, "Mag.+spectrum"); trailing dimensions are taken as one.

    With the right singular vectors V of the tall W = U S V', U (S D) V' is W V D V', and V comes from the Gram matrix:
    half the time of a full decomposition. What squaring costs in precision is below fp32's.
    """
    matrix = gaussian.flatten(1).double()  # [m, k]
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T  # [m, n]
    n = tall.shape[1]
    vectors = torch.linalg.eigh(tall.T @ tall).eigenvectors.flip(1)  # [n, n], of descending singular values
    factors = torch.exp(-decay / n * torch.arange(n, dtype=tall.dtype))
    shaped = tall @ (vectors * factors) @ vectors.T
    shaped *= std * shaped.numel() ** 0.5 / torch.linalg.matrix_norm(shaped)
    return (shaped if tall is matrix else shaped.T).float().reshape(gaussian.shape).contiguous()
