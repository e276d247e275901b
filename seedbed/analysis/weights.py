"""What do the weights of a model look like, matrix by matrix and component by component?"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, in_order
from seedbed.facts.table import canonical, parameter_facts, part_of
from seedbed.files.parts import Parts
from seedbed.hub.checkpoints import Checkpoint, fingerprint, open_checkpoint
from seedbed.init.plan import joints
from seedbed.measure.cosine import cosine_map
from seedbed.measure.density import SAMPLE, density, entry_sample
from seedbed.measure.rows import WeightRow, component_table, matrix_row, profile_table
from seedbed.measure.spectra import MatrixStats, gaussian_stats, matrix_stats, spectrum, stacked
from seedbed.measure.table import Rows
from seedbed.report.weights_rows import CosineMap, DensityRow, Spectrum, Weights

__all__ = ["SPECTRA_BUDGET", "affordable", "analyze", "component_table", "weight_rows"]

SPECTRA_BUDGET = 5e11
"""Products that the singular values of a model, and those of one matrix, may take: two minutes of one core (choice)."""


MAP_ROWS = 128  # of a matrix, whose cosines are shown: blocks show, and a page of six maps stays small
DENSITY_POINTS = 101  # of a curve
LEAST_SAMPLE = 300  # entries of a matrix, where a component has very many


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


@dataclass(frozen=True)
class _Matrix:
    """What is measured as one: a part of a parameter, or several parts below each other."""

    fact: ParameterFact
    pieces: tuple[tuple[str, ParameterFact], ...]  # (the parameter that holds it, the part)

    @property
    def joint(self) -> bool:
        return len(self.pieces) > 1


def analyze(
    source: str | Path | nn.Module | Checkpoint, parts: Parts | None = None, tell: Callable[[str], None] | None = None
) -> Weights:
    """Measure every matrix of a run, a checkpoint or a model: science section 4, with one matrix in memory at a time.

    Blocks of fused matrices are measured one by one, queries, keys and values also as the one matrix that they make
    (S2), stacked experts one by one, tied matrices once. A matrix with a problem is a row with its reason. ``parts``
    keeps what is finished, ``tell`` hears how far it is. Raises InputError where ``source`` is no whole checkpoint or a
    model without weights, and where not one matrix has numbers.
    """
    checkpoint = _opened(source)
    parts = Parts(None, None) if parts is None else parts
    matrices = _matrices(checkpoint.facts)
    looked_at, alike = _looked_at(matrices), Counter(matrix.fact.role for matrix in matrices)
    joint = sum(matrix.joint for matrix in matrices)
    counted = f"{len(matrices) - joint} matrices" + (f" and {joint} joint" if joint else "")
    read = lru_cache(maxsize=1)(checkpoint.read)  # the blocks of a fused matrix follow each other
    found: list[tuple[_Matrix, dict[str, Any]]] = []
    for number, matrix in enumerate(matrices, 1):
        if tell is not None:
            tell(f"{number} of {len(matrices)} ({counted})")
        sample = max(LEAST_SAMPLE, SAMPLE // alike[matrix.fact.role])
        make = partial(_measured, matrix, read, sample, matrix.fact.name in looked_at)
        # several models may share the parts, and another configuration may cut the same tensors otherwise
        found.append((matrix, parts.get(f"{checkpoint.name}: {matrix.fact}", make)))
    rows = [_weight_row(matrix.fact, value["stats"], parts) for matrix, value in found]
    if not any(row.stats.std is not None for row in rows):
        first = f"{rows[0].name}: {rows[0].stats.problem}" if rows else "it has none"
        raise InputError(f"{checkpoint.name}: no matrix could be measured; {first}")
    table = Rows(matrix_row(row, matrix.fact.depth, matrix.joint) for row, (matrix, _) in zip(rows, found, strict=True))
    return Weights(
        name=checkpoint.name,
        layers=max(fact.n_layers for fact in checkpoint.facts),
        parameters=sum(math.prod(fact.shape) for fact in checkpoint.facts),
        files=fingerprint(checkpoint),
        matrices=table,
        components=Rows(component_table(rows)),
        profiles=Rows(profile_table(table)),
        spectra=Rows(_spectrum(matrix.fact, value["values"]) for matrix, value in found if value["values"]),
        densities=Rows(_pooled([(m.fact, value) for m, value in found if value["sample"]])),
        cosines=Rows(_cosine_map(matrix.fact, value["cosines"]) for matrix, value in found if value["cosines"]),
    )


def _opened(source: str | Path | nn.Module | Checkpoint) -> Checkpoint:
    if isinstance(source, Checkpoint):
        return source
    if not isinstance(source, nn.Module):
        return open_checkpoint(source)
    if any(parameter.is_meta for parameter in source.parameters()):
        raise InputError(f"{type(source).__name__}: has no weights (on the meta device); load or draw them first")
    facts = parameter_facts(source)
    tensors = {canonical(name): parameter.detach() for name, parameter in source.named_parameters()}
    return Checkpoint(type(source).__name__, facts, [], tensors, {fact.name: fact.name for fact in facts})


def _matrices(facts: Sequence[ParameterFact]) -> list[_Matrix]:
    """Every part that is a matrix, and behind the values of each attention its queries, keys and values as one."""
    joined = joints(list(facts))
    pieces: dict[str, list[tuple[str, ParameterFact]]] = {}
    found = []
    for fact in facts:
        for part in fact.parts():
            if not part.is_matrix:
                continue
            found.append(_Matrix(part, ((fact.name, part),)))
            if part.name in joined:
                whole, _ = joined[part.name]
                pieces.setdefault(whole.name, []).append((fact.name, part))
                if len(pieces[whole.name]) == 3:
                    found.append(_Matrix(whole, tuple(pieces[whole.name])))
    return found


def _looked_at(matrices: Sequence[_Matrix]) -> set[str]:
    """Names of the matrices whose cosines are shown: a role that reads the stream in attention and one in the
    feed-forward network, at the first, middle and last layer that have it; of experts the first."""
    chosen = set()
    for roles in (("attn.q", "attn.qkv", "attn.q_up"), ("mlp.up", "mlp.gate")):
        facts = [m.fact for m in matrices if m.fact.layer is not None]
        role = next((role for role in roles if any(fact.role == role for fact in facts)), None)
        by_layer: dict[int | None, str] = {}
        for fact in facts:
            if fact.role == role:
                by_layer.setdefault(fact.layer, fact.name)
        layers = sorted(layer for layer in by_layer if layer is not None)
        if layers:
            chosen |= {by_layer[layers[place]] for place in (0, (len(layers) - 1) // 2, -1)}
    return chosen


def _measured(matrix: _Matrix, read: Callable[[str], Tensor], sample: int, look: bool) -> dict[str, Any]:
    """JSON values: stats, singular values, ``sample`` of the entries, and the cosines between rows where ``look``."""
    weight = stacked([part_of(read(parameter), part) for parameter, part in matrix.pieces])
    stats, values = spectrum(weight)
    finite = stats.std is not None
    shown = cosine_map(weight, MAP_ROWS).cosines if look and values is not None else None
    return {
        "stats": asdict(stats),
        "values": None if values is None else values.tolist(),
        "sample": [float(f"{x:.6g}") for x in entry_sample(weight, sample).tolist()] if finite else None,
        "cosines": None if shown is None else [[round(cosine, 2) for cosine in row] for row in shown],
    }


def _weight_row(fact: ParameterFact, kept: dict[str, Any], parts: Parts) -> WeightRow:
    stats = _stats(kept)
    if stats.problem is not None:
        return WeightRow(fact.name, fact.role, fact.layer, stats, None)
    shape = stats.shape
    gaussian = parts.get(f"Gaussian {shape[0]} x {shape[1]}", lambda: asdict(gaussian_stats(*shape)))
    return WeightRow(fact.name, fact.role, fact.layer, stats, _stats(gaussian))


def _stats(kept: dict[str, Any]) -> MatrixStats:
    return replace(MatrixStats(**kept), shape=tuple(kept["shape"]))


def _spectrum(fact: ParameterFact, values: list[float]) -> Spectrum:
    return Spectrum(fact.name, fact.role, fact.layer, None if fact.layer is None else fact.depth, values)


def _cosine_map(fact: ParameterFact, cosines: list[list[float]]) -> CosineMap:
    return CosineMap(fact.name, fact.role, fact.layer or 0, fact.shape[0], cosines)


def _pooled(found: Sequence[tuple[ParameterFact, dict[str, Any]]]) -> list[DensityRow]:
    """The density of each component's entries, from equal samples of its matrices.

    Each matrix is standardized by its own mean and std: layers of unlike scale, pooled as they are, would be a mixture
    with heavier tails than any of them. A matrix whose entries are all equal has no shape and is left out.
    """
    rows = []
    for role in in_order(fact.role for fact, _ in found):
        own = [(value["sample"], value["stats"]) for fact, value in found if fact.role == role]
        own = [(sample, stats) for sample, stats in own if stats["std"] > 0]
        if not own:
            continue
        entries = sum(math.prod(stats["shape"]) for _, stats in own)
        samples = [(torch.tensor(x, dtype=torch.float64) - stats["mean"]) / stats["std"] for x, stats in own]
        estimate = density(torch.cat(samples), entries, DENSITY_POINTS)
        if estimate.problem is None:
            rows.append(DensityRow(role, entries, estimate.sampled, list(estimate.at), list(estimate.density)))
    return rows
