"""Rows of measurements on weights, as analysis fills them and reports show them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

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


BESIDE = ("stable_rank", "entropy_rank", "er90", "er95", "er99", "condition", "row_cosine")
"""Measures that say little without those of a Gaussian matrix of the same shape, and the ratio to them."""


@dataclass(frozen=True)
class MatrixRow:
    """One matrix, or one block of a fused one, flat, as a table has it; fields as in MatrixStats, None where
    ``problem`` says why there is no number. ``gaussian_X`` is X of a Gaussian matrix of this shape, ``ratio_X`` the
    ratio of the matrix's to it.
    """

    name: str
    role: str
    layer: int | None
    depth: float | None  # layer / (layers - 1); None outside the layers
    joint: bool  # of matrices that have rows of their own too: the queries, keys and values of one attention
    rows: int
    columns: int
    problem: str | None
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    rms: float | None
    frobenius: float | None
    spectral: float | None
    stable_rank: float | None
    gaussian_stable_rank: float | None
    ratio_stable_rank: float | None
    entropy_rank: float | None
    gaussian_entropy_rank: float | None
    ratio_entropy_rank: float | None
    er90: float | None
    gaussian_er90: float | None
    ratio_er90: float | None
    er95: float | None
    gaussian_er95: float | None
    ratio_er95: float | None
    er99: float | None
    gaussian_er99: float | None
    ratio_er99: float | None
    condition: float | None
    gaussian_condition: float | None
    ratio_condition: float | None
    row_cosine: float | None
    gaussian_row_cosine: float | None
    ratio_row_cosine: float | None
    zero_rows: int | None


@dataclass(frozen=True)
class ProfileRow:
    """A component at one layer: means over its matrices there (experts) that could be measured."""

    role: str
    layer: int
    depth: float
    matrices: int
    rms: float | None
    std: float | None
    stable_rank: float | None
    entropy_rank: float | None
    rank_share: float | None  # entropy_rank / min(m, n): compares between widths
    er90: float | None
    er95: float | None
    er99: float | None
    condition: float | None  # the median
    row_cosine: float | None
    gaussian_stable_rank: float | None
    gaussian_entropy_rank: float | None
    gaussian_rank_share: float | None
    gaussian_row_cosine: float | None


@dataclass(frozen=True)
class ComponentRow:
    """All matrices of one role: means over those that could be measured, None when none could."""

    role: str
    matrices: int
    problems: tuple[str, ...]  # "name: reason" of each matrix that is left out of the spectral means
    rms: float | None
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
    gaussian_er90: float | None
    gaussian_er95: float | None
    gaussian_er99: float | None
    gaussian_condition_median: float | None
    gaussian_row_cosine: float | None


def matrix_row(row: WeightRow, depth: float, joint: bool = False) -> MatrixRow:
    """``row`` flat, with the ratios to the Gaussian matrix; ``depth`` is that of its layer, and a ``joint`` matrix is
    made of others that have rows too."""
    stats, (rows, *columns) = row.stats, row.stats.shape
    named = ("mean", "std", "min", "max", "rms", "frobenius", "spectral")
    values: dict[str, Any] = {name: getattr(stats, name) for name in named}
    for name in BESIDE:
        value, gaussian = getattr(stats, name), row.gaussian and getattr(row.gaussian, name)
        values |= {name: value, f"gaussian_{name}": gaussian, f"ratio_{name}": ratio(value, gaussian)}
    zero_rows = None if stats.std is None else stats.zero_rows
    place = None if row.layer is None else depth
    width = math.prod(columns)
    return MatrixRow(
        row.name, row.role, row.layer, place, joint, rows, width, stats.problem, **values, zero_rows=zero_rows
    )


def ratio(value: float | None, reference: float | None) -> float | None:
    """``value / reference``; None where either is missing, or the reference is nothing to compare with."""
    if value is None or not reference or not math.isfinite(reference):
        return None
    return value / reference


def profile_table(rows: Sequence[MatrixRow]) -> list[ProfileRow]:
    """Every component at every layer it is in, by component and depth."""
    found: dict[tuple[str, int], list[MatrixRow]] = {}
    for row in rows:
        if row.layer is not None:
            found.setdefault((row.role, row.layer), []).append(row)
    roles = in_order(role for role, _ in found)
    return [_profile(found[key]) for key in sorted(found, key=lambda key: (roles.index(key[0]), key[1]))]


def _profile(rows: list[MatrixRow]) -> ProfileRow:
    beside = ("stable_rank", "entropy_rank", "row_cosine")
    means: dict[str, Any] = {
        name: _average(getattr(row, name) for row in rows)
        for name in ("rms", "std", "er90", "er95", "er99", *beside, *(f"gaussian_{one}" for one in beside))
    }
    return ProfileRow(
        role=rows[0].role,
        layer=rows[0].layer or 0,
        depth=rows[0].depth or 0.0,
        matrices=len(rows),
        rank_share=_average(ratio(row.entropy_rank, min(row.rows, row.columns)) for row in rows),
        gaussian_rank_share=_average(ratio(row.gaussian_entropy_rank, min(row.rows, row.columns)) for row in rows),
        condition=_average((row.condition for row in rows), median),
        **means,
    )


def _average(values: Iterable[float | None], average: Callable[[Sequence[float]], float] = fmean) -> float | None:
    """Of those that are there; None where there is none."""
    known = [value for value in values if value is not None]
    return average(known) if known else None


def component_table(rows: Sequence[WeightRow]) -> list[ComponentRow]:
    """Rows summarised by role, in the order embeddings, attention, feed-forward, head."""
    roles = in_order(row.role for row in rows)
    return [_component(role, [row for row in rows if row.role == role]) for role in roles]


def _component(role: str, rows: list[WeightRow]) -> ComponentRow:
    def mean(field: str, reference: bool = False, average=fmean) -> float | None:
        stats = [row.gaussian if reference else row.stats for row in rows]
        return _average((getattr(one, field) for one in stats if one is not None), average)

    return ComponentRow(
        role=role,
        matrices=len(rows),
        problems=tuple(f"{row.name}: {row.stats.problem}" for row in rows if row.stats.problem),
        rms=mean("rms"),
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
        gaussian_er90=mean("er90", reference=True),
        gaussian_er95=mean("er95", reference=True),
        gaussian_er99=mean("er99", reference=True),
        gaussian_row_cosine=mean("row_cosine", reference=True),
        gaussian_condition_median=mean("condition", reference=True, average=median),
    )
