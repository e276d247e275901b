"""Matrices with singular values that were chosen: orthogonal ones, and those of S2's spectral laws."""

import torch
from torch import Tensor


def orthogonal(gaussian: Tensor) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, from a Gaussian matrix [m, ...], by QR with positive diagonal;
    trailing dimensions are taken as one, and the distribution is uniform over such matrices (Saxe et al. 2014)."""
    matrix = gaussian.flatten(1)  # [m, n]
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    q, r = torch.linalg.qr(tall)
    q *= r.diagonal().sign()
    return (q if tall is matrix else q.T).reshape(gaussian.shape).contiguous()


def shaped_spectrum(gaussian: Tensor, std: float, decay: float) -> Tensor:
    """``gaussian`` [m, ...] with singular value i of n multiplied by exp(-decay*i/n), i from 0, then scaled such that
    the Frobenius norm is sqrt(numel)*std (S2 section 3, "Mag.+spectrum")."""
    u, values, vh = torch.linalg.svd(gaussian.flatten(1).double(), full_matrices=False)  # [m, r], [r], [r, n]
    index = torch.arange(len(values), dtype=values.dtype)
    shaped = (u * (values * torch.exp(-decay * index / len(values)))) @ vh
    shaped *= std * shaped.numel() ** 0.5 / torch.linalg.matrix_norm(shaped)
    return shaped.float().reshape(gaussian.shape)
