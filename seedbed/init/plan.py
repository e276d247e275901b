"""An initialization as data: one row a parameter, known before any number is drawn."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from seedbed.config import InitConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.laws import Distribution, distribution

# Draws are fp32: below, entries would be denormal or 0; above, their squares are infinite.
SMALLEST_STD, LARGEST_STD = 1e-30, 1e18


@dataclass(frozen=True)
class PlanRow:
    """What will be drawn for one parameter, or for one block of a fused one."""

    name: str
    role: str
    shape: tuple[int, ...]
    d_in: int
    distribution: Distribution
    parameter: str  # the parameter that holds it; differs from `name` for a block
    rows: tuple[int, int] | None = None  # of a block: its rows in the parameter
    tied: tuple[str, ...] = ()

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Plan:
    """A law, its options and the rows that follow from them."""

    law: str
    options: dict[str, Any]
    rows: tuple[PlanRow, ...]

    @property
    def n_parameters(self) -> int:
        return sum(row.numel for row in self.rows)

    def dump(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"law": self.law, "options": self.options, "rows": [asdict(row) for row in self.rows]}

    @property
    def title(self) -> str:
        return " ".join([self.law, *(f"{key}={value}" for key, value in self.options.items())])


def make_plan(facts: Iterable[ParameterFact], init: InitConfig) -> Plan:
    """Resolve a law on the facts of a model (which may live on the meta device).

    Raises InputError naming the parameter where the law gives no finite, positive scale.
    """
    rows = []
    for fact in facts:
        for part in fact.parts():
            try:
                law = distribution(part, init.law, init.options)
            except ArithmeticError as error:
                raise InputError(
                    f"init: law '{init.law}' has no scale for {part.name} (d_in {part.d_in}, {part.n_layers} layers): "
                    f"{error}; change its options or the law"
                ) from None
            if law.kind != "constant" and not SMALLEST_STD <= law.std <= LARGEST_STD:
                raise InputError(
                    f"init: law '{init.law}' gives std {law.std:g} for {part.name}, which fp32 cannot draw; "
                    "change its options"
                )
            rows.append(PlanRow(part.name, part.role, part.shape, part.d_in, law, fact.name, part.rows, part.tied))
    return Plan(init.law, init.options, tuple(rows))
