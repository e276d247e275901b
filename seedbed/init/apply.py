"""From a plan to numbers, and the receipt that says what was drawn."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from seedbed.config import InitConfig
from seedbed.config.options import options_model
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import canonical, parameter_facts, part_of
from seedbed.init.plan import Plan, PlanRow, plan_law
from seedbed.init.reuse import open_copies
from seedbed.init.spectral import orthogonal, shaped_spectrum
from seedbed.laws import Distribution, Law

FORMAT_VERSION = 2  # of receipts


@dataclass(frozen=True)
class ReceiptRow:
    """Target and measured standard deviation of what was drawn; `mean` is the measured mean."""

    name: str
    role: str
    shape: tuple[int, ...]
    distribution: str
    target_std: float
    std: float
    mean: float


@dataclass(frozen=True)
class InitReport:
    """What an initialization did, and what it takes to do it again: the plan and the seed."""

    seed: int
    plan: Plan
    rows: tuple[ReceiptRow, ...]

    def dump(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "seed": self.seed,
            "plan": self.plan.dump(),
            "rows": [asdict(row) for row in self.rows],
        }

    @classmethod
    def load(cls, path: str | Path) -> "InitReport":
        """Read a ``receipt.json``. Raises InputError where there is none that can be replayed."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            if told["format_version"] not in (1, FORMAT_VERSION):  # 1 has fewer fields, all of which have defaults
                raise InputError(f"{path}: receipt format {told['format_version']}, this release reads 1 and 2")
            return TypeAdapter(cls).validate_python({key: told[key] for key in ("seed", "plan", "rows")})
        except FileNotFoundError:
            raise InputError(f"{path}: no such receipt") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: not the receipt of a draw; a run from other weights has none") from None

    def __str__(self) -> str:
        head = f"{self.plan.title}, seed {self.seed}: {self.plan.n_parameters:,} parameters in {len(self.rows)} draws"
        lines = [f"{'parameter':<34} {'role':<10} {'shape':<14} {'law':<22} {'target std':>11} {'std':>11}"]
        for row in self.rows:
            place = f"{row.name:<34} {row.role:<10} {'×'.join(map(str, row.shape)):<14}"
            lines.append(f"{place} {row.distribution:<22} {row.target_std:>11.4g} {row.std:>11.4g}")
        return "\n".join([head, *lines])


def tensor_seed(seed: int, name: str) -> int:
    """A seed of its own for each tensor: 63 bits of SHA-256 of the run's seed and the canonical name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & (2**63 - 1)


def draw(shape: tuple[int, ...], law: Distribution, seed: int, name: str) -> Tensor:
    """The numbers of one tensor: fp32, contiguous, on the CPU, whatever the model's device, precision or sharding."""
    tensor = torch.empty(shape, dtype=torch.float32)
    if law.kind == "constant":
        return tensor.fill_(law.value)
    if not law.is_drawn:
        raise ValueError(f"{name}: '{law.kind}' is not drawn")
    generator = torch.Generator().manual_seed(tensor_seed(seed, name))
    match law.kind:
        case "uniform":
            bound = law.std * 3**0.5
            return tensor.uniform_(-bound, bound, generator=generator)
        case "orthogonal":
            longest = max(shape[0], math.prod(shape[1:]))
            return orthogonal(tensor.normal_(generator=generator)).mul_(law.std * longest**0.5)
        case "spectrum":
            return shaped_spectrum(tensor.normal_(generator=generator), law.std, law.decay)
        case _:
            return tensor.normal_(0.0, law.std, generator=generator)


def apply_plan(module: nn.Module, plan: Plan, seed: int) -> InitReport:
    """Draw every row of the plan into the module's parameters, in place.

    A sharded parameter (DTensor) gets its shard of the same numbers; every rank draws the whole, none communicates.
    Raises InputError, before anything is drawn, when the plan does not cover each parameter of the module exactly,
    when a parameter lies on the meta device, when one that is kept holds NaN, or when a checkpoint to copy from does
    not fit.
    """
    parameters = {canonical(name): parameter for name, parameter in module.named_parameters()}
    _check_cover(parameters, plan.rows)
    _check_kept(parameters, plan.rows)
    copies = open_copies(plan)
    receipt: list[ReceiptRow] = []
    values_of = partial(_values, seed=seed, copies=copies, last={})
    with torch.no_grad():
        for name, group in groupby(plan.rows, key=lambda row: row.parameter):
            target, rows = parameters[name], list(group)
            if all(row.distribution.kind == "kept" for row in rows):
                receipt += [_receipt_row(row, part_of(_whole(target), row)) for row in rows]
                continue
            # a shard has no rows or columns of its own: the whole is put together first
            sharded = isinstance(target, DTensor)
            whole = torch.empty(target.shape) if sharded else target
            for row in rows:
                values = values_of(row)
                part_of(whole, row).copy_(values)
                receipt.append(_receipt_row(row, values))
            if sharded:
                shard = distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None)
                target.to_local().copy_(shard.to_local())
    return InitReport(seed, plan, tuple(receipt))


def initialize_(
    module: nn.Module,
    law: str | Law = "gamma",
    seed: int = 0,
    roles: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    **options: Any,
) -> InitReport:
    """Initialize any module in place by a law: ``initialize_(model, "gamma", gamma=1.0)``; see seedbed.laws.

    ``law`` may be a function of one's own. ``roles`` says what parameters are that no rule knows (parameter_facts);
    ``only`` names the parameters to draw, for example those that a state dict did not have: all others stay untouched.
    Raises InputError, leaving the module untouched, on an unknown law or option and on parameters that no rule covers.
    """
    try:
        if isinstance(law, str):
            init = InitConfig(law=law, **options)
            title, options = init.law, init.options
        else:
            title, options = law.__name__, options_model(law).model_validate(options).model_dump()
    except ValidationError as error:
        raise InputError(f"initialize_: {error.errors()[0]['msg']}") from None
    return apply_plan(module, plan_law(parameter_facts(module, roles), title, law, options, only), seed)


def _values(row: PlanRow, seed: int, copies: Callable[[PlanRow], Tensor], last: dict[str, Tensor]) -> Tensor:
    """The numbers of a row. ``last`` keeps the latest joint draw, which the next rows share."""
    if row.distribution.kind == "copied":
        return copies(row)
    if row.joint is None:
        values = draw(row.shape, row.distribution, seed, row.name)
    else:
        if row.joint.name not in last:
            last.clear()
            last[row.joint.name] = draw(row.joint.shape, row.distribution, seed, row.joint.name)
        values = last[row.joint.name][slice(*row.joint.rows)]
    if row.zero_row is not None:
        values[row.zero_row] = 0
    return values


def _check_cover(parameters: dict[str, nn.Parameter], rows: Iterable[PlanRow]) -> None:
    drawn: dict[str, int] = {}
    for row in rows:
        drawn[row.parameter] = drawn.get(row.parameter, 0) + row.numel
    missing = [name for name in parameters if name not in drawn]
    unknown = [name for name in drawn if name not in parameters]
    partial = [name for name in drawn if name in parameters and drawn[name] != parameters[name].numel()]
    meta = [name for name, parameter in parameters.items() if parameter.is_meta]
    for names, problem in (
        (missing, "the plan does not cover"),
        (unknown, "the model does not have"),
        (partial, "the plan covers only a part of"),
        (meta, "on the meta device, call to_empty(device=...) first:"),
    ):
        if names:
            raise InputError(f"init: {problem} {', '.join(names)}")


def _check_kept(parameters: dict[str, nn.Parameter], rows: Iterable[PlanRow]) -> None:
    """What is kept must have been made by someone."""
    kept = {row.parameter: parameters[row.parameter] for row in rows if row.distribution.kind == "kept"}
    undrawn = [name for name, parameter in kept.items() if not _whole(parameter).isfinite().all()]
    if undrawn:
        raise InputError(
            f"init: {', '.join(undrawn)} would be kept as it is, but holds NaN or infinity: nothing has written it; "
            "load it first, or say with roles what it is"
        )


def _whole(parameter: Tensor) -> Tensor:
    """All of a parameter that may be sharded."""
    detached = parameter.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def drawn_parts(module: nn.Module) -> Iterator[tuple[ParameterFact, Tensor]]:
    """Each parameter of ``module``, the blocks of a fused one apart, with its fact; views, not copies."""
    parameters = {canonical(name): parameter.detach() for name, parameter in module.named_parameters()}
    for fact in parameter_facts(module):
        for part in fact.parts():
            tensor = parameters[fact.name]
            yield part, part_of(tensor, part)


def _receipt_row(row: PlanRow, values: Tensor) -> ReceiptRow:
    if row.zero_row is not None and row.distribution.is_drawn:  # the row that is zero on purpose is not measured
        values = torch.cat((values[: row.zero_row], values[row.zero_row + 1 :]))
    values, law = values.float(), row.distribution
    std, mean = values.std(correction=0).item(), values.mean().item()
    return ReceiptRow(row.name, row.role, row.shape, str(law), target_std=law.std, std=std, mean=mean)
