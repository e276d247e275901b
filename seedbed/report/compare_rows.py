"""Rows of several models, with the model's name in front."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from seedbed.measure.rows import ComponentRow, MatrixRow, ProfileRow
from seedbed.measure.table import Rows
from seedbed.report.weights_rows import SingularValue, Weights


@dataclass(frozen=True)
class Comparison:
    """The weights of several models."""

    models: list[Weights]


@dataclass(frozen=True)
class _OfCheckpoint:
    checkpoint: str


@dataclass(frozen=True)
class ComparedMatrix(MatrixRow, _OfCheckpoint):
    """A matrix of one of several models."""


@dataclass(frozen=True)
class ComparedComponent(ComponentRow, _OfCheckpoint):
    """A component of one of several models."""


@dataclass(frozen=True)
class ComparedProfile(ProfileRow, _OfCheckpoint):
    """A component at one layer of one of several models."""


@dataclass(frozen=True)
class ComparedValue(SingularValue, _OfCheckpoint):
    """A singular value of one of several models."""


RowT = TypeVar("RowT", bound=_OfCheckpoint)


def compared_tables(models: Sequence[Weights]) -> dict[str, Rows[Any]]:
    """The tables of one model's analysis, of all models below each other."""
    return {
        "matrices": _joined(models, ComparedMatrix, lambda model: model.matrices),
        "components": _joined(models, ComparedComponent, lambda model: model.components),
        "profiles": _joined(models, ComparedProfile, lambda model: model.profiles),
        "spectra": _joined(models, ComparedValue, lambda model: model.singular_values),
    }


def _joined(models: Sequence[Weights], kind: type[RowT], rows: Callable[[Weights], Iterable[Any]]) -> Rows[RowT]:
    return Rows(
        kind(checkpoint=model.name, **{field.name: getattr(row, field.name) for field in fields(row)})
        for model in models
        for row in rows(model)
    )
