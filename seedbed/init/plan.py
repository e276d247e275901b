"""An initialization as data: one row a parameter, known before any number is drawn."""

import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seedbed.config import InitConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, branch_of
from seedbed.facts.table import canonical
from seedbed.laws import JOINT, KEPT, Distribution, Law, distribution

# Draws are fp32: below, entries would be denormal or 0; above, their squares are infinite.
SMALLEST_STD, LARGEST_STD = 1e-30, 1e18


@dataclass(frozen=True)
class Joint:
    """One draw that several rows share: which matrix it is, and which of its rows are those of the plan's row."""

    name: str
    shape: tuple[int, ...]
    rows: tuple[int, int]


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
    expert: int | None = None  # of a block: its index along the parameter's first dimension
    transposed: bool = False  # the parameter holds it as (d_in, d_out)
    zero_row: int | None = None  # a row that is zero whatever the draw
    joint: Joint | None = None  # drawn as a part of a larger matrix

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Plan:
    """A law, its options and the rows that follow from them."""

    law: str
    options: dict[str, Any]
    rows: tuple[PlanRow, ...]
    sources: dict[str, str] = field(default_factory=dict)  # SHA-256 of each file copied from, once it was carried out

    @property
    def n_parameters(self) -> int:
        return sum(row.numel for row in self.rows)

    def dump(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @property
    def title(self) -> str:
        told = {key: value for key, value in self.options.items() if value is not None}
        return " ".join([self.law, *(f"{key}={value}" for key, value in told.items())])


def make_plan(facts: Iterable[ParameterFact], init: InitConfig, only: Iterable[str] | None = None) -> Plan:
    """Resolve a law on the facts of a model (which may live on the meta device).

    ``only`` names the parameters to draw; the others are kept as they are. Raises InputError naming the parameter
    where the law gives no finite, positive scale, and names in ``only`` that the model does not have.
    """
    return plan_law(facts, init.law, init.law, init.options, only)


def plan_law(
    facts: Iterable[ParameterFact],
    title: str,
    law: Law | str,
    options: dict[str, Any],
    only: Iterable[str] | None = None,
) -> Plan:
    """:func:`make_plan` for a law that is given as a function."""
    facts = list(facts)
    wanted = None if only is None else _wanted(facts, only)
    joined = joints(facts) if title in JOINT else {}
    _warn_unread(facts, options.get("by_role") or {})
    rows = []
    for fact in facts:
        for part in fact.parts():
            drawn_as, joint = joined.get(part.name, (part, None))
            keep = wanted is not None and fact.name not in wanted
            given = KEPT if keep else _checked(drawn_as, title, law, options)
            rows.append(
                PlanRow(
                    part.name, part.role, part.shape, part.d_in, given, fact.name, part.rows, part.tied, part.expert,
                    part.transposed, part.zero_row, joint if given.is_drawn else None,
                )
            )  # fmt: skip
    return Plan(title, options, tuple(rows))


def _checked(fact: ParameterFact, title: str, law: Law | str, options: dict[str, Any]) -> Distribution:
    try:
        given = distribution(fact, law, options)
    except ArithmeticError as error:
        raise InputError(
            f"init: law '{title}' has no scale for {fact.name} (d_in {fact.d_in}, {fact.n_layers} layers): "
            f"{error}; change its options or the law"
        ) from None
    except InputError as error:
        raise InputError(f"init: {fact.name}: {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"init: law '{title}' fails on {fact.name}: {error}") from None
    if not isinstance(given, Distribution):
        raise InputError(f"init: law '{title}' gives {given!r} for {fact.name}; a law returns a Distribution")
    if problem := undrawable(given):
        raise InputError(f"init: law '{title}' gives {problem} for {fact.name}; change its options")
    return given


def undrawable(given: Distribution) -> str | None:
    """What numbers of a distribution make no draw, or None."""
    if given.is_drawn and not SMALLEST_STD <= given.std <= LARGEST_STD:
        return f"std {given.std:g}, which fp32 cannot draw,"
    if not (math.isfinite(given.value) and abs(given.decay) < 100):  # exp(-100) is 0 in fp32
        return f"value {given.value:g} and decay {given.decay:g}, which make no numbers,"
    return None


def _warn_unread(facts: list[ParameterFact], by_role: Iterable[str]) -> None:
    """Tell of options that change nothing: those for roles that the model does not have."""
    roles = {part.role for fact in facts for part in fact.parts()}
    unread = [name for name in by_role if not any(name in (role, role.partition(".")[0]) for role in roles)]
    if unread:
        warnings.warn(f"init.by_role: the model has no {', '.join(unread)}", stacklevel=3)


def _wanted(facts: list[ParameterFact], only: Iterable[str]) -> set[str]:
    """The parameters all of whose names are in ``only``: a tied tensor that came in under one of its names is there,
    though a state dict also counts the other as missing; of those that are passed over for it a warning tells."""
    only = {canonical(name) for name in only}
    names = {fact.name: {fact.name, *fact.tied} for fact in facts}
    unknown = sorted(only.difference(*names.values()))
    if unknown:
        raise InputError(f"only: the model has no parameter {', '.join(unknown)}; names are those of its state dict")
    for every in names.values():
        if every & only and not every <= only:
            told, other = sorted(every & only), sorted(every - only)
            warnings.warn(
                f"only: {', '.join(told)} stays as it is: it is tied to {', '.join(other)}; name both to draw it",
                stacklevel=2,
            )
    return {name for name, every in names.items() if every <= only}


def joints(facts: list[ParameterFact]) -> dict[str, tuple[ParameterFact, Joint]]:
    """For queries, keys and values of one attention: the matrix of all three, and each one's rows in it."""
    found: dict[str, dict[str, ParameterFact]] = {}
    for part in (part for fact in facts for part in fact.parts()):
        if part.role in ("attn.q", "attn.k", "attn.v"):
            found.setdefault(branch_of(part.name), {})[part.role] = part
    result = {}
    for branch, parts in found.items():
        if len(parts) < 3 or len({part.d_in for part in parts.values()}) > 1:
            continue
        q, d_out = parts["attn.q"], sum(part.d_out for part in parts.values())
        whole = replace(q, name=f"{branch}.qkv.weight", role="attn.qkv", shape=(d_out, q.d_in), d_out=d_out, rows=None)
        start = 0
        for role in ("attn.q", "attn.k", "attn.v"):
            stop = start + parts[role].d_out
            result[parts[role].name] = whole, Joint(whole.name, whole.shape, (start, stop))
            start = stop
    return result
