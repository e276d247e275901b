"""What do the weights of a model look like, matrix by matrix and component by component?"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

from safetensors import SafetensorError, safe_open
from torch import Tensor

from seedbed.errors import InputError
from seedbed.facts.fact import MATRIX_ROLES, ParameterFact
from seedbed.measure.rows import ComponentRow, WeightRow
from seedbed.measure.spectra import gaussian_stats, matrix_stats


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
        if tuple(tensor.shape) != fact.shape:
            raise InputError(
                f"{name}: shape {tuple(tensor.shape)} in the weights, {fact.shape} in the model; "
                "give the configuration these weights are from"
            )
        if fact.is_matrix and fact.name not in found:
            found[fact.name] = [_row(part, tensor) for part in fact.parts()]
    wanted = dict.fromkeys(fact.name for fact in known.values() if fact.is_matrix)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(f"{', '.join(missing)}: missing from the weights; give all files of the checkpoint")
    return [row for name in wanted for row in found[name]]


def _row(fact: ParameterFact, tensor: Tensor) -> WeightRow:
    """``tensor`` [d_out, d_in] is the matrix of ``fact``, or the fused one that it is a block of."""
    stats = matrix_stats(tensor if fact.rows is None else tensor[slice(*fact.rows)])
    gaussian = gaussian_stats(*stats.shape) if stats.problem is None else None
    return WeightRow(fact.name, fact.role, fact.layer, stats, gaussian)


def checkpoint_tensors(path: str | Path) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of a safetensors file, or of all those in a folder, in order of their names, one at a time.

    Raises InputError when there is no such file or one of them is damaged.
    """
    path = Path(path)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise InputError(f"{path}: no safetensors file here; give a checkpoint's folder or its weights file")
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in sorted(tensors.keys()):
                    yield name, tensors.get_tensor(name)
        except SafetensorError as error:
            raise InputError(f"{file}: damaged ({error}); copy it again or use another checkpoint") from None


def component_table(rows: Sequence[WeightRow]) -> list[ComponentRow]:
    """Rows summarised by role, in the order embeddings, attention, feed-forward, head."""
    order = {role: place for place, role in enumerate(MATRIX_ROLES)}
    roles = sorted({row.role for row in rows}, key=lambda role: (order.get(role, len(order)), role))
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
