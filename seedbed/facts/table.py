"""The parameter table of a model: one fact per parameter, found by module type and by attribute name.

Initialization, optimizer groups and analysis all read this table and nothing else about a model.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.fact import ROLES, ParameterFact, branch_of

# Attribute path (without ".weight") -> role; the first pattern that is found wins.
PATTERNS: tuple[tuple[str, str], ...] = (
    (r"(^|\.)(pos|wpe|position_embeddings?|embed_positions)$", "pos"),
    (r"(^|\.)(embed|embed_tokens|wte|tok_embeddings)$", "embed"),
    (r"(^|\.)(head|lm_head)$", "head"),
    (r"(^|\.)(attn|self_attn|attention)\.(q|q_proj|query)$", "attn.q"),
    (r"(^|\.)(attn|self_attn|attention)\.(k|k_proj|key)$", "attn.k"),
    (r"(^|\.)(attn|self_attn|attention)\.(v|v_proj|value)$", "attn.v"),
    (r"(^|\.)(attn|self_attn|attention)\.(o|o_proj|out_proj)$", "attn.o"),
    (r"(^|\.)(attn|self_attn|attention)\.gate$", "attn.gate"),
    (r"(^|\.)mlp\.(gate|gate_proj)$", "mlp.gate"),
    (r"(^|\.)mlp\.(up|up_proj)$", "mlp.up"),
    (r"(^|\.)mlp\.(down|down_proj)$", "mlp.down"),
)
WRITES_RESIDUAL = {"attn.o", "mlp.down"}

_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.)")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")


def canonical(name: str) -> str:
    """A parameter's name without the prefixes that compiling, sharding and checkpoint wrappers add."""
    return _WRAPPERS.sub("", name).lstrip(".")


def role_of(path: str) -> str | None:
    """The role that an attribute path such as ``layers.0.attn.q`` tells, or None."""
    return next((role for pattern, role in PATTERNS if re.search(pattern, path)), None)


def parameter_facts(module: nn.Module, roles: Mapping[str, str] | None = None) -> list[ParameterFact]:
    """One fact per distinct parameter of ``module``, in the order of ``named_parameters``.

    ``roles`` maps regular expressions on canonical names to roles, for what the table does not know; it is asked first.
    Raises InputError naming every parameter that no rule covers, a parameter without elements, a wrong role or pattern.
    """
    for pattern, role in (roles or {}).items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"roles: '{pattern}' is no regular expression ({error}); escape it with re.escape"
            ) from None
        if role not in ROLES:
            raise InputError(f"roles: unknown role '{role}'; known: {', '.join(ROLES)}")
    names: dict[int, list[str]] = {}  # id of the tensor -> all its names
    owners: dict[str, nn.Module] = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for attribute, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
            name = canonical(f"{prefix}.{attribute}" if prefix else attribute)
            names.setdefault(id(parameter), []).append(name)
            owners[name] = owner
    n_layers = 1 + max((_layer(name) or 0 for name in owners if _layer(name) is not None), default=-1)
    facts, uncovered, wanted = [], [], {id(p): p for p in module.parameters()}
    for key, parameter in wanted.items():
        name, *tied = names[key]
        if not parameter.numel():
            raise InputError(f"{name}: has no elements, its shape is {tuple(parameter.shape)}; leave the layer out")
        fact = _fact(name, owners[name], tuple(parameter.shape), n_layers, tuple(tied), roles or {})
        facts.append(fact)
        if fact is None:
            uncovered.append(name)
    if uncovered:
        raise InputError(
            f"{type(module).__name__}: no rule covers {', '.join(uncovered)}; say what each is with "
            f"roles={{'{uncovered[0]}': ROLE}}, a pattern and one of: {', '.join(ROLES)}"
        )
    return _with_branches([fact for fact in facts if fact is not None])


class Place(Protocol):
    """Where in a parameter a matrix lies: a fact or a plan's row."""

    @property
    def rows(self) -> tuple[int, int] | None: ...
    @property
    def expert(self) -> int | None: ...
    @property
    def transposed(self) -> bool: ...


def part_of(parameter: Tensor, part: Place) -> Tensor:
    """The view of a module's ``parameter`` that ``part`` is about, [d_out, d_in] however it is stored."""
    if part.expert is not None:
        parameter = parameter[part.expert]
    if part.transposed:
        parameter = parameter.mT
    return parameter if part.rows is None else parameter[slice(*part.rows)]


def _with_branches(facts: Sequence[ParameterFact]) -> list[ParameterFact]:
    """The facts with the number of maps in series of each residual branch: attention 2 (value, output), a feed-forward
    network 2, or 3 where a gate multiplies its hidden layer (science section 2)."""
    parts = [part for fact in facts for part in fact.parts()]
    gated = {branch_of(part.name) for part in parts if part.role == "mlp.gate"}

    def told(part: ParameterFact) -> ParameterFact:
        if not part.role.startswith(("attn.", "mlp.")):
            return part
        return replace(part, maps=3 if branch_of(part.name) in gated else 2)

    return [replace(told(fact), blocks=tuple(told(block) for block in fact.blocks)) for fact in facts]


def _layer(name: str) -> int | None:
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def _fact(
    name: str, owner: nn.Module, shape: tuple[int, ...], n_layers: int, tied: tuple[str, ...], roles: Mapping[str, str]
) -> ParameterFact | None:
    path, _, attribute = name.rpartition(".")
    place = {"layer": _layer(name), "n_layers": n_layers, "tied": tied}
    told = next((role for pattern, role in roles.items() if re.search(pattern, name)), None)
    is_norm = type(owner).__name__.endswith("Norm")
    if told is None and len(shape) == 1:
        told = {("weight", True): "norm", ("bias", True): "norm.bias"}.get((attribute, is_norm))
        if told is None and attribute == "bias" and isinstance(owner, nn.Linear):
            told = "bias"
    if len(shape) == 1:
        return told and ParameterFact(name, told, shape, d_in=1, d_out=shape[0], **place)  # pyright: ignore
    blocks = getattr(owner, "blocks", None) if attribute == "weight" else None
    if blocks is not None:
        return _fused(name, path, blocks, shape, place)
    if told is None and isinstance(owner, nn.Linear | nn.Embedding) and attribute == "weight":
        told = role_of(path) or ("linear" if isinstance(owner, nn.Linear) else "embed")
    if told is None or not shape:
        return None
    return ParameterFact(
        name, told, shape, d_in=math.prod(shape[1:]), d_out=shape[0], writes_residual=told in WRITES_RESIDUAL, **place
    )


def _fused(name: str, path: str, blocks: Mapping[str, int], shape: tuple[int, ...], place: dict) -> ParameterFact:
    """A fused matrix ``a.qkv`` with blocks {q: rows, ...}: each block is a fact named ``a.q.weight``."""
    parent, _, own = path.rpartition(".")
    parts, start = [], 0
    for block, rows in blocks.items():
        block_path = f"{parent}.{block}" if parent else block
        role = role_of(block_path) or "linear"
        parts.append(
            ParameterFact(
                f"{block_path}.weight",
                role,
                (rows, shape[1]),
                d_in=shape[1],
                d_out=rows,
                rows=(start, start + rows),
                writes_residual=role in WRITES_RESIDUAL,
                **place,
            )
        )
        start += rows
    if start != shape[0]:
        raise InputError(f"{name}: its blocks have {start} rows, the matrix has {shape[0]}")
    role = f"{parent.rpartition('.')[2]}.{own}"  # for example attn.qkv; never drawn or optimized as one
    return ParameterFact(name, role, shape, d_in=shape[1], d_out=shape[0], blocks=tuple(parts), **place)
