"""What do the weights of a model look like, matrix by matrix and component by component?"""

import math
from collections.abc import Iterable, Sequence

from torch import Tensor

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import part_of
from seedbed.measure.rows import WeightRow, component_table
from seedbed.measure.spectra import gaussian_stats, matrix_stats

__all__ = ["SPECTRA_BUDGET", "affordable", "component_table", "weight_rows"]

SPECTRA_BUDGET = 5e11
"""Products that the singular values of a model, and those of one matrix, may take: two minutes of one core (choice)."""


def weight_rows(state: Iterable[tuple[str, Tensor]], facts: Iterable[ParameterFact]) -> list[WeightRow]:
    """Measure every matrix of ``state``; the blocks of a fused matrix are measured one by one (S1, S2).

    ``state`` gives (canonical name, tensor), one tensor held at a time; a tied matrix is measured once, under any of
    its names. Vectors are passed over. A matrix with a problem is a row with its reason. Rows come in the order of the
    facts. Raises InputError when a name has no fact, a shape differs from its fact's, or a matrix is missing.
    """
    known = {name: fact for fact in facts for name in (fact.name, *fact.tied)}
    found: dict[str, list[WeightRow]] = {}
    for name, tensor in state:
        fact = known.get(name)
        if fact is None:
            raise InputError(f"{name}: the model has no such parameter; give the configuration these weights are from")
        if tuple(tensor.shape) != fact.stored_shape:
            raise InputError(
                f"{name}: shape {tuple(tensor.shape)} in the weights, {fact.stored_shape} in the model; "
                "give the configuration these weights are from"
            )
        if fact.is_matrix and fact.name not in found:
            found[fact.name] = [_row(part, tensor) for part in fact.parts()]
    wanted = dict.fromkeys(fact.name for fact in known.values() if fact.is_matrix)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(f"{', '.join(missing)}: missing from the weights; give all files of the checkpoint")
    return [row for name in wanted for row in found[name]]


def affordable(facts: Sequence[ParameterFact], budget: float = SPECTRA_BUDGET) -> list[ParameterFact]:
    """Of the matrices those to measure where all would take too long: as many whole layers, evenly spaced, as
    ``budget`` has products for, the first and the last in any case; outside of layers each that fits in it alone.

    A matrix [m, n] takes m n min(m, n).
    """
    matrices = [fact for fact in facts if fact.is_matrix]
    layers = sorted({fact.layer for fact in matrices if fact.layer is not None})
    in_layers = sum(_products(fact) for fact in matrices if fact.layer is not None)
    count = len(layers) if in_layers <= budget else max(2, int(len(layers) * budget / in_layers))
    chosen = {layers[round(place * (len(layers) - 1) / max(count - 1, 1))] for place in range(min(count, len(layers)))}
    return [f for f in matrices if (_products(f) <= budget if f.layer is None else f.layer in chosen)]


def _products(fact: ParameterFact) -> int:
    return sum(math.prod(part.shape) * min(part.shape) for part in fact.parts())


def _row(fact: ParameterFact, tensor: Tensor) -> WeightRow:
    """``tensor`` is the parameter of ``fact``, or the fused one that it is a block of."""
    stats = matrix_stats(part_of(tensor, fact))
    gaussian = gaussian_stats(*stats.shape) if stats.problem is None else None
    return WeightRow(fact.name, fact.role, fact.layer, stats, gaussian)
