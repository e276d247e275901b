"""Fused parameters: which rows of which expert are which map."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import nn

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, branch_of
from seedbed.facts.geometry import is_expert_stack
from seedbed.facts.patterns import GATE_UP, QKV, WRITES_RESIDUAL, Roles


def holder(name: str) -> str:
    """The path of the module that a map belongs to: ``mlp.experts`` of the stack ``mlp.experts.down_proj``."""
    return name.removesuffix(".weight").rpartition(".")[0]


def declared_blocks(owner: nn.Module) -> Mapping[str, int]:
    """``{"q": rows, ...}`` where a module says how its matrix is divided; many keep something else under that name."""
    blocks = getattr(owner, "blocks", None)
    return blocks if isinstance(blocks, Mapping) and all(isinstance(rows, int) for rows in blocks.values()) else {}


def divided(fact: ParameterFact, roles: Roles, owner: nn.Module, inner: int | None, told: bool) -> ParameterFact:
    """``fact`` with a block for each map in it: each expert of a stack, and of each the ``roles`` in order.

    A block is named as if it were a parameter of its own beside the fused one: ``h.0.attn.q.weight`` of
    ``h.0.attn.c_attn.weight``, ``mlp.experts.3.up.weight`` of ``mlp.experts.gate_up_proj``. ``owner`` may declare its
    blocks, ``{"q": rows, ...}``. ``inner`` is the input width of the output map beside it: it tells how many rows are
    queries, and that a first map with twice as many rows is a gate and an up map. Nothing else divides a parameter
    whose role the user has ``told``. Raises InputError when the rows do not add up.
    """
    stacked = is_expert_stack(fact.role, fact.shape)
    if roles == "mlp.up" and inner and fact.d_out == 2 * inner and not told:
        roles = GATE_UP
    if roles == GATE_UP and not getattr(owner, "is_concatenated", True):
        roles = "mlp.up"  # rows of gate and up in turn: one matrix
    if isinstance(roles, str):
        if not stacked:
            return fact
        roles = (roles,)
    declared = {} if told else declared_blocks(owner)
    names = list(declared) or [role.partition(".")[2] for role in roles]
    sizes = list(declared.values()) or _rows(roles, fact.d_out, inner)
    if sum(sizes) != fact.d_out or min(sizes) < 1:
        raise InputError(
            f"{fact.name}: its blocks {', '.join(names)} have {sum(sizes)} rows, the matrix has {fact.d_out}; "
            "say with roles what it is"
        )
    blocks, prefix = [], holder(fact.name)
    for expert in range(fact.shape[0]) if stacked else (None,):
        start = 0
        for name, role, rows in zip(names, roles, sizes, strict=True):
            path = ".".join(filter(None, (prefix, "" if expert is None else str(expert), name)))
            blocks.append(
                replace(
                    fact,
                    name=f"{path}.weight",
                    role=role,
                    shape=(rows, fact.d_in),
                    d_out=rows,
                    writes_residual=role in WRITES_RESIDUAL,
                    rows=None if len(roles) == 1 else (start, start + rows),
                    expert=expert,
                )
            )
            start += rows
    return replace(fact, role=_joined(roles), blocks=tuple(blocks))


def _rows(roles: tuple[str, ...], d_out: int, inner: int | None) -> list[int]:
    """Queries have as many rows as the output map has inputs, and keys and values share what is left; else all have
    equally many."""
    if roles == QKV and inner:
        return [inner, (d_out - inner) // 2, (d_out - inner) // 2]
    return [d_out // len(roles)] * len(roles)


def _joined(roles: tuple[str, ...]) -> str:
    """The name of several roles as one: ``attn.qkv``, ``mlp.gate_up``. Never drawn or optimized as one."""
    if roles == QKV:
        return "attn.qkv"
    return f"{roles[0].partition('.')[0]}.{'_'.join(role.partition('.')[2] for role in roles)}"


def with_branches(facts: Iterable[ParameterFact]) -> list[ParameterFact]:
    """The facts with the number of maps in series of each residual branch: attention 2 (value, output), a feed-forward
    network 2, or 3 where a gate multiplies its hidden layer (science section 2)."""
    facts = list(facts)
    parts = [part for fact in facts for part in fact.parts()]
    inner = {branch_of(part.name): part.d_in for part in parts if part.role == "mlp.down"}
    gated = {
        branch_of(part.name)
        for part in parts
        if part.role == "mlp.gate" or (part.role == "mlp.up" and part.d_out == 2 * inner.get(branch_of(part.name), 0))
    }

    def told(part: ParameterFact) -> ParameterFact:
        if not part.role.startswith(("attn.", "mlp.")):
            return part
        return replace(part, maps=3 if branch_of(part.name) in gated else 2)

    return [replace(told(fact), blocks=tuple(told(block) for block in fact.blocks)) for fact in facts]
