"""How are trained models scaled over depth? Measures the matrices of checkpoints and pools them to a cohort (S2)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, in_order
from seedbed.facts.table import part_of
from seedbed.hub.checkpoints import Checkpoint, hashes_of, open_checkpoint
from seedbed.init.plan import joints
from seedbed.laws.cohort import GRID, Cohort, Component, Curve, Member, component_of
from seedbed.measure.spectra import matrix_stats, stacked


@dataclass
class Matrix:
    """One matrix to measure: the parts that make it up, each with the parameter that holds it."""

    name: str
    component: str
    depth: float
    parts: list[tuple[str, ParameterFact]] = field(default_factory=list)


class Values(NamedTuple):
    """What is measured of a matrix; the fields of laws.cohort.Component."""

    rms: float
    entropy_rank: float
    rank_share: float


@dataclass(frozen=True)
class Measured:
    """A checkpoint, and for each component its measures by relative depth, {component: {z: values}}."""

    member: Member
    curves: dict[str, dict[float, Values]]


def matrices(facts: list[ParameterFact]) -> list[Matrix]:
    """The matrices of residual branches; queries, keys and values are joined as the laws join them."""
    found: dict[str, Matrix] = {}
    joined = joints(facts)
    for fact in facts:
        for part in fact.parts():
            if part.role.startswith(("attn.", "mlp.")) and part.is_matrix and part.layer is not None:
                whole = joined[part.name][0] if part.name in joined else part
                one = found.setdefault(whole.name, Matrix(whole.name, component_of(whole.role), part.depth))
                one.parts.append((fact.name, part))
    return list(found.values())


def measure(path: str | Path, tell: Callable[[str], None]) -> Measured:
    """Measure the checkpoint at ``path``, one matrix in memory at a time.

    Several matrices of a component at one depth (experts) count as their mean (choice). One that has no honest number
    (NaN, zero, a single row) is left out with the reason. Raises InputError on what is no whole checkpoint, where there
    is no depth to speak of, and where nothing is left.
    """
    checkpoint = open_checkpoint(path)
    wanted = matrices(checkpoint.facts)
    if len({matrix.depth for matrix in wanted}) < 2:
        raise InputError(f"{path}: has no two layers with attention or feed-forward matrices, so no trend over depth")
    found: dict[str, dict[float, list[Values]]] = {}
    left_out = []
    for number, matrix in enumerate(wanted, 1):
        tell(f"{number} of {len(wanted)} matrices")
        rows = [part_of(checkpoint.read(parameter), part).flatten(1) for parameter, part in matrix.parts]
        stats = matrix_stats(stacked(rows))
        if stats.problem is not None or stats.rms is None or stats.entropy_rank is None:
            left_out.append(f"{matrix.name}: {stats.problem}")
            continue
        values = Values(stats.rms, stats.entropy_rank, stats.entropy_rank / min(stats.shape))
        found.setdefault(matrix.component, {}).setdefault(matrix.depth, []).append(values)
    if not found:
        raise InputError(f"{path}: no matrix could be measured; {left_out[0]}")
    curves = {
        component: {z: Values(*map(fmean, zip(*several, strict=True))) for z, several in sorted(by_depth.items())}
        for component, by_depth in found.items()
    }
    return Measured(_member(checkpoint, left_out), curves)


def pool(measured: Sequence[Measured], note: str, command: str) -> Cohort:
    """Mean and spread over checkpoints of each component, at common relative depths; ``note`` and ``command`` say how
    they came about.

    Curves are linear between a checkpoint's layers, and constant before the first and after the last layer that has
    the component (choice). Raises InputError when two checkpoints are the same weights, which would count them twice:
    that is judged by the content of their files alone. A cohort is a sample of trained weights, and another
    configuration or tokenizer beside the same weights is no other training. The same weights in files of another format
    or cut are not recognized.
    """
    by_weights: dict[tuple[str, ...], Measured] = {}
    for one in measured:
        if (other := by_weights.setdefault(tuple(sorted(one.member.sha256)), one)) is not one:
            names = f"{other.member.name} and {one.member.name}"
            raise InputError(f"{names} are the same weights, which would count twice; give each checkpoint once")
    components = {}
    for name in in_order(component for one in measured for component in one.curves):
        curves = [one.curves[name] for one in measured if name in one.curves]
        components[name] = Component(
            checkpoints=len(curves),
            rms=_pooled(curves, "rms"),
            entropy_rank=_pooled(curves, "entropy_rank"),
            rank_share=_pooled(curves, "rank_share"),
        )
    return Cohort(
        command=command,
        version=version("seedbed"),
        note=note,
        depth=GRID,
        members=tuple(one.member for one in measured),
        components=components,
    )


def _member(checkpoint: Checkpoint, left_out: list[str]) -> Member:
    facts = checkpoint.facts
    return Member(
        name=checkpoint.name,
        layers=max(fact.n_layers for fact in facts),
        width=next((fact.d_in for fact in facts if fact.role == "embed"), max(fact.d_in for fact in facts)),
        parameters=sum(math.prod(fact.shape) for fact in facts),
        sha256=tuple(hashes_of(checkpoint)),
        left_out=tuple(left_out),
    )


def _pooled(curves: Sequence[dict[float, Values]], measure: str) -> Curve:
    """Mean and sample standard deviation at the common depths, to six digits."""
    resampled = [np.interp(GRID, list(curve), [getattr(v, measure) for v in curve.values()]) for curve in curves]
    stacked = np.stack(resampled)  # [checkpoints, depths]
    std = _rounded(stacked.std(axis=0, ddof=1)) if len(curves) > 1 else None
    return Curve(mean=_rounded(stacked.mean(axis=0)), std=std)


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
