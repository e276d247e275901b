"""Rows of measurements on weights, as analysis fills them and reports show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from seedbed.facts.fact import in_order
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


def component_table(rows: Sequence[WeightRow]) -> list[ComponentRow]:
    """Rows summarised by role, in the order embeddings, attention, feed-forward, head."""
    roles = in_order(row.role for row in rows)
    return [_component(role, [row for row in rows if row.role == role]) for role in roles]


def _component(role: str, rows: list[WeightRow]) -> ComponentRow:
    def mean(field: str, reference: bool = False, average=fmean) -> float | None:
        stats = [row.gaussian if reference else row.stats for row in rows]
        values = [getattr(one, field) for one in stats if one is not None]
        values = [value for value in values if value is not None]
        return average(values) if values else None

    return ComponentRow(
        role=role,
        matrices=len(rows),
        problems=tuple(f"{row.name}: {row.stats.problem}" for row in rows if row.stats.problem),
        std=mean("std"),
        stable_rank=mean("stable_rank"),
        entropy_rank=mean("entropy_rank"),
        er90=mean("er90"),
        er95=mean("er95"),
        er99=mean("er99"),
        condition=mean("condition"),
        condition_median=mean("condition", average=median),
        row_cosine=mean("row_cosine"),
        gaussian_stable_rank=mean("stable_rank", reference=True),
        gaussian_entropy_rank=mean("entropy_rank", reference=True),
        gaussian_er99=mean("er99", reference=True),
        gaussian_row_cosine=mean("row_cosine", reference=True),
        gaussian_condition_median=mean("condition", reference=True, average=median),
    )
