"""Rows of measurements, as analysis fills them and reports show them."""

from dataclasses import dataclass

from seedbed.measure.spectra import MatrixStats


@dataclass(frozen=True)
class WeightRow:
    """One matrix of a model, or one block of a fused one."""

    name: str
    role: str
    layer: int | None
    stats: MatrixStats
    gaussian: MatrixStats | None  # the same measures of a Gaussian matrix of this shape; None where stats has a problem


@dataclass(frozen=True)
class ComponentRow:
    """All matrices of one role: means over those that could be measured, None when none could."""

    role: str
    matrices: int
    problems: tuple[str, ...]  # "name: reason" of each matrix that is left out of the spectral means
    std: float | None
    stable_rank: float | None
    entropy_rank: float | None
    er90: float | None
    er95: float | None
    er99: float | None
    condition: float | None  # its mean over square matrices diverges: the median is beside it
    condition_median: float | None
    row_cosine: float | None
    gaussian_stable_rank: float | None
    gaussian_entropy_rank: float | None
    gaussian_er99: float | None
    gaussian_condition_median: float | None
    gaussian_row_cosine: float | None
