"""The parameter table of a model: one fact per parameter, found by module type and by attribute name.

Initialization, optimizer groups and analysis all read this table and nothing else about a model.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.blocks import declared_blocks, divided, holder, with_branches
from seedbed.facts.fact import ROLES, VECTOR_ROLES, ParameterFact
from seedbed.facts.geometry import CONVOLUTIONS, LOOKUPS, TRANSPOSED_CONVOLUTIONS, geometry, is_conv1d
from seedbed.facts.layers import layers, placement
from seedbed.facts.norms import norm_role, of_a_norm
from seedbed.facts.patterns import (
    INTERLEAVED,
    MAPS,
    PARAMETERS,
    QKV,
    TABLES,
    WRITES_RESIDUAL,
    Roles,
    canonical,
    look_up,
    writes_residual,
)

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

__all__ = ["canonical", "parameter_facts", "part_of"]


class _Found(NamedTuple):
    """A parameter before it is divided into its blocks."""

    fact: ParameterFact
    roles: Roles
    owner: nn.Module
    told: bool  # by the user, not by the table


def parameter_facts(module: nn.Module, roles: Mapping[str, str] | None = None) -> list[ParameterFact]:
    """One fact per distinct parameter of ``module``, in the order of ``named_parameters``.

    ``roles`` maps regular expressions on canonical names to roles, for what the table does not know; it is asked first.
    Raises InputError naming every parameter that no rule covers, a parameter without elements, a wrong role or pattern,
    and a matrix's role told of a vector.
    """
    roles = roles or {}
    _check_roles(roles)
    modules = {canonical(f"{path}.").rstrip("."): each for path, each in module.named_modules(remove_duplicate=False)}
    names: dict[int, list[str]] = {}  # id of the tensor -> all its names
    for path, owner in modules.items():
        for attribute, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
            names.setdefault(id(parameter), []).append(f"{path}.{attribute}" if path else attribute)
    places = layers((name for name, *_ in names.values()), modules)
    found: list[_Found] = []
    uncovered = []
    for parameter in module.parameters():
        name = names[id(parameter)][0]
        each = _find(names[id(parameter)], parameter, places[name], modules, roles)
        if each is None:
            uncovered.append(name)
        else:
            found.append(each)
    if uncovered:
        raise InputError(
            f"{type(module).__name__}: no rule covers {', '.join(uncovered)}; say what each is with "
            f"roles={{'{uncovered[0]}': ROLE}}, a regular expression and one of: {', '.join(ROLES)}"
        )
    inner = {_branch(each.fact): each.fact.d_in for each in found if each.fact.role in WRITES_RESIDUAL}
    return with_branches(
        divided(each.fact, each.roles, each.owner, inner.get(_branch(each.fact)), each.told) for each in found
    )


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


def _find(
    names: list[str],
    parameter: nn.Parameter,
    place: tuple[int | None, int],
    modules: Mapping[str, nn.Module],
    roles: Mapping[str, str],
) -> _Found | None:
    """The fact of a parameter that has these names, undivided; None when no rule covers it."""
    name, *tied = names
    shape = tuple(parameter.shape)
    if not parameter.numel():
        raise InputError(f"{name}: has no elements, its shape is {shape}; leave the layer out")
    # a matrix that is tied to an embedding is one
    speaker = next((each for each in names if isinstance(_owner(each, modules), nn.Embedding)), name)
    owner = _owner(speaker, modules)
    told = next((role for pattern, role in roles.items() if re.search(pattern, name)), None)
    own = told or _roles(speaker, parameter, modules)
    role = own if isinstance(own, str) or own is None else own[0]
    if own is None or role is None:
        return None
    if role not in VECTOR_ROLES and len(shape) < (1 if role in LOOKUPS else 2):
        if told is None:
            return None
        raise InputError(
            f"roles: {name} has shape {shape} and cannot be '{told}'; use {', '.join(VECTOR_ROLES)} or token"
        )
    fact = ParameterFact(
        name,
        role,
        **geometry(name, role, owner, shape)._asdict(),
        layer=place[0],
        n_layers=place[1],
        writes_residual=role in WRITES_RESIDUAL or writes_residual(role, name.removesuffix(".weight")),
        tied=tuple(tied),
        zero_row=getattr(owner, "padding_idx", None) if role in LOOKUPS else None,
        placement=placement(holder(name), modules),
    )
    return _Found(fact, own, owner, told is not None)


def _check_roles(roles: Mapping[str, str]) -> None:
    for pattern, role in roles.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"roles: '{pattern}' is no regular expression ({error}); write '.*' for anything, '\\.' for a dot"
            ) from None
        if role not in ROLES:
            raise InputError(f"roles: unknown role '{role}'; known: {', '.join(ROLES)}")


def _owner(name: str, modules: Mapping[str, nn.Module]) -> nn.Module:
    return modules[name.rpartition(".")[0]]


def _branch(fact: ParameterFact) -> tuple[str, str]:
    """The attention or feed-forward network that a map is part of: its module, and which of the two."""
    return holder(fact.name), fact.role.partition(".")[0]


def _roles(name: str, parameter: nn.Parameter, modules: Mapping[str, nn.Module]) -> Roles | None:
    """The role that module type and name tell, the roles of a fused matrix, or None."""
    path, _, attribute = name.rpartition(".")
    owner = modules[path]
    if named := look_up(PARAMETERS, name):
        return named
    if of_a_norm(owner, attribute):
        return norm_role(owner, attribute)
    if attribute == "bias":
        return "bias"
    if attribute != "weight" or isinstance(owner, nn.Embedding):
        named = look_up(TABLES, path if attribute == "weight" else name)
        if named == "pos" and not parameter.requires_grad:
            return "kept"  # a table of sines
        return named or ("embed" if isinstance(owner, nn.Embedding) else None)
    if declared := declared_blocks(owner):
        parent = path.rpartition(".")[0]
        told = [_map_role(f"{parent}.{block}".lstrip("."), modules) for block in declared]
        return tuple(role if isinstance(role, str) else "linear" for role in told)
    named = _map_role(path, modules)
    if isinstance(owner, CONVOLUTIONS + TRANSPOSED_CONVOLUTIONS):
        return named if named in ("patch", "head") else "conv"
    if isinstance(owner, nn.Linear) or is_conv1d(owner):
        return named or "linear"
    return named if named == "moe.router" else None


def _map_role(path: str, modules: Mapping[str, nn.Module]) -> Roles | None:
    """What the table of maps tells of a module, once its path says what the type of the module around it does."""
    parent_path, _, last = path.rpartition(".")
    parent = modules[parent_path]
    if isinstance(parent, nn.MultiheadAttention):
        path = f"attn.{last}"
    elif isinstance(parent, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        path = f"mlp.{last}"
    elif isinstance(parent, nn.Sequential) and isinstance(modules.get(path), nn.Linear):
        linear = [name for name, child in parent.named_children() if isinstance(child, nn.Linear)]
        path = f"{parent_path}.linear{1 + linear.index(last)}".lstrip(".")
    role = look_up(MAPS, path) or look_up(MAPS, path.removeprefix(f"{_model_path(modules)}."))
    if role == "mlp.gate" and hasattr(parent, "experts"):
        return "moe.router"
    return "attn.qkv" if role == QKV and _is_interleaved(parent) else role


def _is_interleaved(attention: nn.Module) -> bool:
    """Whether its fused matrix has q, k and v in turns: by its class, or GPTBigCode's where all heads have keys."""
    return type(attention).__name__ in INTERLEAVED or getattr(attention, "multi_query", None) is False


def _model_path(modules: Mapping[str, nn.Module]) -> str:
    """The path of the model within modules that hold it and nothing else: names are as they would be without those."""
    path = ""
    while True:
        module = modules[path]
        inner = [name for name, child in module.named_children() if _has_parameters(child)]
        if len(inner) != 1 or any(True for _ in module.parameters(recurse=False)) or isinstance(module, CONTAINERS):
            return path
        path = f"{path}.{inner[0]}".lstrip(".")


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
