"""Directions of the rows of a matrix: how alike they are, and in which order that shows."""

from dataclasses import dataclass

import torch
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from seedbed.measure.singular import lower_gram

MEAN_ROWS = 1024  # the pairs of a 100,000-row table would cost more than its singular values
MAP_ROWS = 192  # more are finer than a figure's pixels


@dataclass(frozen=True)
class CosineMap:
    """Cosines between rows of a matrix, in an order in which rows of one direction stand together (S0, fig. 4)."""

    rows: tuple[int, ...]  # places in the matrix, in the order shown
    cosines: tuple[tuple[float, ...], ...]  # [k, k], in [-1, 1]
    total_rows: int  # of the matrix
    zero_rows: int  # of the rows looked at: without a direction, not shown


def row_cosine(matrix: Tensor, max_rows: int = MEAN_ROWS) -> float | None:
    """Mean absolute cosine over all pairs of different rows of ``matrix`` [m, n] (S0, fig. 4).

    Zero rows have no direction and are left out; None when fewer than two rows are left. Above ``max_rows`` rows,
    that many evenly spaced ones stand for all (choice).
    """
    return mean_cosine(lower_gram(unit_rows(matrix[evenly_spaced(len(matrix), max_rows)])[0].T))


def mean_cosine(gram: Tensor) -> float | None:
    """``row_cosine`` of all rows of a matrix whose products are the lower triangle of ``gram`` [m, m]."""
    norms = gram.diagonal().sqrt()  # [m]
    k = int(torch.count_nonzero(norms))
    if k < 2:
        return None
    inverse = torch.where(norms > 0, 1 / norms, 0)
    cosines = (gram * inverse).mul_(inverse[:, None]).tril_(-1)  # [m, m], each pair once
    return float(torch.linalg.vector_norm(cosines, ord=1)) / (k * (k - 1) / 2)


def cosine_map(matrix: Tensor, max_rows: int = MAP_ROWS) -> CosineMap:
    """Cosines between at most ``max_rows`` evenly spaced rows of a finite ``matrix`` [m, n], in ``row_order``."""
    places = evenly_spaced(len(matrix), max_rows)
    units, kept = unit_rows(matrix[places])  # [k, n], [k]
    cosines = (units @ units.T).clamp(-1, 1).cpu()  # [k, k]
    order = row_order(cosines)
    rows = places[kept.cpu()][order]
    shown = cosines[order][:, order]
    return CosineMap(
        rows=tuple(rows.tolist()),
        cosines=tuple(map(tuple, shown.tolist())),
        total_rows=len(matrix),
        zero_rows=len(places) - len(units),
    )


def row_order(cosines: Tensor) -> Tensor:
    """An order [k] of rows in which condensed ones stand together, from their ``cosines`` [k, k].

    Average linkage on ``1 - |cos|``, with leaves ordered so that neighbours are as alike as the tree allows. Opposite
    rows count as half as alike (choice): a condensed group and its negative become two blocks side by side.
    """
    if len(cosines) < 3:
        return torch.arange(len(cosines))
    distance = 1 - torch.where(cosines < 0, cosines.abs() / 2, cosines)
    distance = (distance + distance.T) / 2
    distance.fill_diagonal_(0)
    tree = linkage(squareform(distance.numpy(), checks=False), method="average", optimal_ordering=True)
    return torch.from_numpy(leaves_list(tree)).long()


def evenly_spaced(count: int, most: int) -> Tensor:
    """Places of at most ``most`` of ``count`` things, the first and the last among them."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """``rows`` [k, n] divided by their norms in float64, without zero rows, and where those kept stand."""
    rows = rows.detach().to(torch.float64)
    peaks = rows.abs().amax(1)  # [k]; dividing by them first keeps the squares in range
    kept = peaks.nonzero()[:, 0]
    rows = rows[kept] / peaks[kept, None]
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True), kept
