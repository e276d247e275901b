"""How large gradients are, component by component."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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


DECADES = range(-15, 1)
"""Exponents of the bounds between the bins of a histogram: below 1e-15, a bin a decade, 1 and above."""
CHUNK = 2**20  # entries at a time: what is made of them stays small


def tally(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """What adds up over the parts of a gradient, and its largest |entry| [].

    The sums [3 + len(DECADES) + 1], fp64: entries, zeros, squares, and how many entries that are not zero lie in each
    bin of |entry|. Both are on the gradient's device. Finite entries are expected.
    """
    sums = torch.zeros(len(DECADES) + 4, dtype=torch.float64, device=gradient.device)
    largest = torch.zeros((), device=gradient.device)
    bounds = torch.tensor([10.0**exponent for exponent in DECADES], device=gradient.device)
    for chunk in gradient.detach().flatten().split(CHUNK) if gradient.numel() else ():
        size = chunk.abs().float()
        zeros = len(size) - torch.count_nonzero(size)
        bins = torch.bucketize(size, bounds, out_int32=True, right=True)
        counts = torch.bincount(bins, minlength=len(DECADES) + 1).double()
        counts[0] -= zeros
        sums[0] += chunk.numel()
        sums[1] += zeros
        sums[2] += torch.linalg.vector_norm(chunk, dtype=torch.float64) ** 2
        sums[3:] += counts
        largest = torch.maximum(largest, size.max())
    return sums, largest


def told(sums: list[float], largest: float) -> dict[str, Any]:
    """The tally of a component as a row: entries, norm, rms, max, the share of exact zeros, counts by decade."""
    entries, zeros, squares, *counts = sums
    return {
        "entries": int(entries),
        "norm": math.sqrt(squares),
        "rms": math.sqrt(squares / entries),
        "max": largest,
        "zeros": zeros / entries,
        "decades": [int(count) for count in counts],
    }
