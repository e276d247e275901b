"""How large the first gradient is, component by component."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from seedbed.facts.fact import ParameterFact, in_order


@dataclass(frozen=True)
class GradientRow:
    """The gradient of all parameters of one role together. A NaN or infinite entry makes its numbers so."""

    role: str
    norm: float  # root of the sum of squares over all its entries
    rms: float  # root of the mean square of an entry
    relative: float | None  # norm / norm of the weights; None where every weight is zero


def gradient_rows(parts: Iterable[tuple[ParameterFact, Tensor, Tensor | None]]) -> list[GradientRow]:
    """A row per role, in the order of roles, of (fact, weight, gradient) for each part of a model's parameters.

    Weight and gradient are views of one shape (``facts.table.part_of``); sums are in fp64. Raises ValueError naming a
    part without a gradient: it took no part in the loss, or backward did not run (choice: not counted as zero).
    """
    squares: dict[str, list[tuple[float, float, int]]] = {}  # role -> (gradient, weight, entries) of each part
    for fact, weight, gradient in parts:
        if gradient is None:
            raise ValueError(f"{fact.name} has no gradient: run backward on a loss that it takes part in")
        squares.setdefault(fact.role, []).append((_square(gradient), _square(weight), weight.numel()))
    return [_row(role, squares[role]) for role in in_order(squares)]


def _row(role: str, squares: list[tuple[float, float, int]]) -> GradientRow:
    gradient, weight, entries = (sum(column) for column in zip(*squares, strict=True))
    relative = math.sqrt(gradient / weight) if weight else None
    return GradientRow(role, math.sqrt(gradient), math.sqrt(gradient / entries), relative)


def _square(x: Tensor) -> float:
    """Sum of squares."""
    return float(torch.linalg.vector_norm(x.detach(), dtype=torch.float64)) ** 2
