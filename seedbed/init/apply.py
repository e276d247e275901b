"""From a plan to numbers in the parameters of a module."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch
from pydantic_core import PydanticCustomError
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seedbed.config.options import checked_options, law_options
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import canonical, parameter_facts, part_of, parts_of
from seedbed.init.plan import Joint, Plan, PlanRow, plan_law, undrawable
from seedbed.init.report import InitReport, ReceiptRow
from seedbed.init.reuse import open_copies
from seedbed.init.sharding import read_whole, write_whole
from seedbed.init.spectral import orthogonal, shaped_spectrum
from seedbed.laws import LAWS, Distribution, Law


def tensor_seed(seed: int, name: str) -> int:
    """A seed of its own for each tensor: 63 bits of SHA-256 of the run's seed and the canonical name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & (2**63 - 1)


def draw(shape: tuple[int, ...], law: Distribution, seed: int, name: str, out: Tensor | None = None) -> Tensor:
    """The numbers of one tensor: fp32, contiguous, on the CPU, whatever the model's device, precision or sharding.

    ``out``, a tensor like that, is filled in place where the distribution can be, and holds anything otherwise.
    """
    tensor = torch.empty(shape, dtype=torch.float32) if out is None else out
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


@torch.no_grad()
def apply_plan(module: nn.Module, plan: Plan, seed: int) -> InitReport:
    """Draw every row of the plan into the module's parameters, in place.

    A sharded parameter (DTensor) gets its shard of the same numbers; every rank draws the whole, none communicates
    unless a sharded parameter is kept. Raises InputError, before anything is drawn, when the plan does not cover each
    parameter of the module exactly, when a parameter lies on the meta device, when one that is kept holds NaN, or when
    a checkpoint to copy from does not fit.
    """
    parameters = {canonical(name): parameter for name, parameter in module.named_parameters()}
    _check_cover(parameters, plan.rows)
    _check_rows(parameters, plan.rows)
    _check_kept(parameters, plan.rows)
    copies = open_copies(plan, module)
    receipt: list[ReceiptRow] = []
    joint: dict[str, Tensor] = {}  # the latest draw that several rows share
    for name, group in groupby(plan.rows, key=lambda row: row.parameter):
        target, rows = parameters[name], list(group)
        kinds = {row.distribution.kind for row in rows}
        stored = copies.read(name) if "copied" in kinds else None
        whole = target
        if isinstance(target, DTensor):  # a shard has no rows or columns of its own: the whole is put together first
            whole = read_whole(target) if "kept" in kinds else torch.empty(target.shape)
        for row in rows:
            part = part_of(whole, row)
            if row.distribution.kind == "kept":
                values = part
            elif stored is not None and row.distribution.kind == "copied":
                values = part_of(stored, row)
            else:
                values = _drawn(row, seed, part, joint)
            if values is not part:
                part.copy_(values)
            receipt.append(_receipt_row(row, values))
        if whole is not target:
            write_whole(target, whole)
    return InitReport(seed, replace(plan, sources=copies.sources), tuple(receipt))


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
    Raises InputError, leaving the module untouched, on an unknown law or option, on a seed that is no whole number from
    0, and on parameters that no rule covers.
    """
    if not isinstance(module, nn.Module) or not (isinstance(law, str) or callable(law)):
        raise InputError(f"initialize_: takes a module and a law, not {type(module).__name__} and {law!r}")
    if isinstance(only, str):
        raise InputError(f"initialize_: only is a list of names; write only=[{only!r}]")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"initialize_: seed is a whole number from 0, not {seed!r}")
    law = next((name for name, known in LAWS.items() if known is law), law)
    try:
        title = law if isinstance(law, str) else getattr(law, "__name__", repr(law))
        options = law_options(law, options) if isinstance(law, str) else checked_options(law, title, options)
    except PydanticCustomError as error:
        raise InputError(f"initialize_: {error}") from None
    return apply_plan(module, plan_law(parameter_facts(module, roles), title, law, options, only), seed)


def _drawn(row: PlanRow, seed: int, part: Tensor, joint: dict[str, Tensor]) -> Tensor:
    """The numbers of a row: ``part`` itself, filled, where it is a tensor to draw into, which saves a pass over it."""
    if row.joint is None:
        direct = part.dtype == torch.float32 and part.device.type == "cpu" and part.is_contiguous()
        values = draw(row.shape, row.distribution, seed, row.name, out=part if direct else None)
    else:
        if row.joint.name not in joint:
            joint.clear()
            joint[row.joint.name] = draw(row.joint.shape, row.distribution, seed, row.joint.name)
        values = joint[row.joint.name][slice(*row.joint.rows)]
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
    integers = [name for name in drawn if name in parameters and not parameters[name].is_floating_point()]
    for names, problem in (
        (missing, "the plan does not cover"),
        (unknown, "the model does not have"),
        (partial, "the plan covers only a part of"),
        (integers, "what is drawn or kept must be floating-point numbers, unlike"),
    ):
        if names:
            raise InputError(f"init: {problem} {', '.join(names)}")
    meta = [name for name, parameter in parameters.items() if parameter.is_meta]
    if meta:
        raise InputError(
            f"init: {len(meta)} parameters ({meta[0]}, ...) lie on the meta device; call seedbed.materialize_(module), "
            "which also computes the buffers, before"
        )


def _check_rows(parameters: dict[str, nn.Parameter], rows: Iterable[PlanRow]) -> None:
    """Every row must be a matrix of its parameter and a draw that it can hold: a plan may come from a file."""
    for row in rows:
        parameter, law, problem = parameters[row.parameter], row.distribution, undrawable(row.distribution)
        try:
            fits = part_of(torch.empty(parameter.shape, device="meta"), row).shape == row.shape
        except (IndexError, RuntimeError):
            fits = False
        if not fits or (row.zero_row is not None and not 0 <= row.zero_row < row.shape[0]):
            problem = f"rows of shape {list(row.shape)} that {row.parameter} of shape {list(parameter.shape)} lacks,"
        elif row.joint and (row.joint.rows[1] > row.joint.shape[0] or _rows_of(row.joint) != row.shape):
            problem = f"rows {list(row.joint.rows)} of a joint draw of shape {list(row.joint.shape)},"
        held = torch.finfo(parameter.dtype)
        # below, a draw has a few values or none, above it has infinite ones
        if law.is_drawn and not held.smallest_normal / 64 <= law.std <= held.max / 8:
            problem = f"std {law.std:g}, which {parameter.dtype} cannot hold,"
        if problem:
            raise InputError(f"init: the plan gives {problem} to {row.name}; nothing was drawn")


def _rows_of(joint: Joint) -> tuple[int, ...]:
    """The shape of the rows of a joint draw that belong to one matrix."""
    return (joint.rows[1] - joint.rows[0], *joint.shape[1:])


def _check_kept(parameters: dict[str, nn.Parameter], rows: Iterable[PlanRow]) -> None:
    """What is kept must have been made by someone."""
    kept = {row.parameter: parameters[row.parameter] for row in rows if row.distribution.kind == "kept"}
    undrawn = [name for name, parameter in kept.items() if not read_whole(parameter).isfinite().all()]
    if undrawn:
        raise InputError(
            f"init: {', '.join(undrawn)} would be kept as it is, but holds NaN or infinity: nothing has written it; "
            "load or write it first, or say with roles what it is"
        )


def drawn_parts(module: nn.Module) -> Iterator[tuple[ParameterFact, Tensor]]:
    """Each parameter of ``module``, the blocks of a fused one apart, with its fact; views, not copies."""
    parameters = {canonical(name): parameter.detach() for name, parameter in module.named_parameters()}
    return parts_of(parameter_facts(module), parameters)


def _receipt_row(row: PlanRow, values: Tensor) -> ReceiptRow:
    if row.zero_row is not None and row.distribution.is_drawn:  # the row that is zero on purpose is not measured
        values = torch.cat((values[: row.zero_row], values[row.zero_row + 1 :]))
    values, law = values.float(), row.distribution
    std, mean = values.std(correction=0).item(), values.mean().item()
    return ReceiptRow(row.name, row.role, row.shape, str(law), target_std=law.std, std=std, mean=mean)
