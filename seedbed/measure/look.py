"""Temporary: until measure/spectra.py has these."""

import numpy as np
import torch
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.distance import squareform
from torch import Tensor

from seedbed.measure.spectra import MatrixStats, matrix_stats, singular_values


def stats_and_values(weight: Tensor) -> tuple[MatrixStats, Tensor | None]:
    stats = matrix_stats(weight)
    return stats, None if stats.stable_rank is None else singular_values(weight.to(torch.float64))


def density(entries: Tensor, points: int = 160) -> tuple[list[float], list[float]]:
    x = entries.detach().double().flatten()
    mean, std = float(x.mean()), float(x.std(correction=0))
    low, high = mean - 8 * std, mean + 8 * std
    bins = 8 * points
    counts = torch.histc(x.clamp(low, high) if False else x, bins, low, high).numpy()
    width = (high - low) / bins
    smooth = gaussian_filter1d(counts, std * len(x) ** -0.2 / width, mode="constant") / (len(x) * width)
    centers = low + width * (np.arange(bins) + 0.5)
    at = np.linspace(low, high, points)
    return at.tolist(), np.interp(at, centers, smooth).tolist()


def cosine_block(weight: Tensor, most: int = 128) -> np.ndarray:
    rows = weight.detach().double()
    rows = rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]
    rows = rows[rows.norm(dim=1) > 0]
    rows = rows / rows.norm(dim=1, keepdim=True)
    cos = (rows @ rows.T).clamp(-1, 1).numpy()
    distance = 1 - cos
    np.fill_diagonal(distance, 0)
    order = leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True))
    return cos[np.ix_(order, order)]


def marchenko_pastur_singular(m: int, n: int, points: int = 200) -> np.ndarray:
    """sigma / sigma_1 at i/r on an even grid."""
    q = min(m, n) / max(m, n)
    low, high = (1 - q**0.5) ** 2, (1 + q**0.5) ** 2
    s = np.linspace(low**0.5, high**0.5, 4001)
    mass = np.sqrt(np.clip((high - s**2) * (s**2 - low), 0, None)) / np.maximum(s, 1e-9)
    cdf = np.concatenate([[0], np.cumsum((mass[1:] + mass[:-1]) / 2)])
    return np.interp(1 - np.linspace(0, 1, points), cdf / cdf[-1], s) / s[-1]


def z_scores(values):
    x = np.asarray(values, dtype=float)
    return None if len(x) < 2 or x.std() <= 1e-12 * abs(x).max() else (x - x.mean()) / x.std()
