"""From a plan to numbers, and the receipt that says what was drawn."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from seedbed.config import InitConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import canonical, parameter_facts
from seedbed.init.plan import Plan, PlanRow, make_plan
from seedbed.laws import Distribution


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
            "format_version": 1,
            "seed": self.seed,
            "plan": self.plan.dump(),
            "rows": [asdict(row) for row in self.rows],
        }

    @classmethod
    def load(cls, path: str | Path) -> "InitReport":
        """Read a ``receipt.json``. Raises InputError where there is none that can be replayed."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            if told["format_version"] != 1:
                raise InputError(f"{path}: receipt format {told['format_version']}, this release reads 1")
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
    generator = torch.Generator().manual_seed(tensor_seed(seed, name))
    if law.kind == "normal":
        return tensor.normal_(0.0, law.std, generator=generator)
    bound = law.std * 3**0.5
    return tensor.uniform_(-bound, bound, generator=generator)


def apply_plan(module: nn.Module, plan: Plan, seed: int) -> InitReport:
    """Draw every row of the plan into the module's parameters, in place.

    Raises InputError, before anything is drawn, when the plan does not cover each parameter of the module exactly, or
    when a parameter lies on the meta device.
    """
    parameters = {canonical(name): parameter for name, parameter in module.named_parameters()}
    _check_cover(parameters, plan.rows)
    receipt = []
    with torch.no_grad():
        for row in plan.rows:
            values = draw(row.shape, row.distribution, seed, row.name)
            target = parameters[row.parameter]
            (target if row.rows is None else target[slice(*row.rows)]).copy_(values)
            receipt.append(_receipt_row(row, values))
    return InitReport(seed, plan, tuple(receipt))


def initialize_(
    module: nn.Module, law: str = "gamma", seed: int = 0, roles: Mapping[str, str] | None = None, **options: Any
) -> InitReport:
    """Initialize any module in place by a law: ``initialize_(model, "gamma", gamma=1.0)``; see seedbed.laws.

    Raises InputError, leaving the module untouched, on an unknown law or option and on parameters that no rule covers
    (``roles`` says what they are, see parameter_facts).
    """
    try:
        init = InitConfig(law=law, **options)
    except ValidationError as error:
        raise InputError(f"initialize_: {error.errors()[0]['msg']}") from None
    return apply_plan(module, make_plan(parameter_facts(module, roles), init), seed)


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


def drawn_parts(module: nn.Module) -> Iterator[tuple[ParameterFact, Tensor]]:
    """Each parameter of ``module``, the blocks of a fused one apart, with its fact; views, not copies."""
    parameters = {canonical(name): parameter.detach() for name, parameter in module.named_parameters()}
    for fact in parameter_facts(module):
        for part in fact.parts():
            tensor = parameters[fact.name]
            yield part, tensor if part.rows is None else tensor[slice(*part.rows)]


def _receipt_row(row: PlanRow, values: Tensor) -> ReceiptRow:
    law = row.distribution
    return ReceiptRow(
        row.name,
        row.role,
        row.shape,
        str(law),
        target_std=law.std,
        std=values.std(correction=0).item(),
        mean=values.mean().item(),
    )
