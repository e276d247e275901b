"""The parameter table of a model: one fact per parameter, found by module type and by attribute name.

Initialization, optimizer groups and analysis all read this table and nothing else about a model.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.blocks import divided, holder, with_branches
from seedbed.facts.fact import ROLES, VECTOR_ROLES, ParameterFact
from seedbed.facts.geometry import LOOKUPS, geometry
from seedbed.facts.layers import layers, placement
from seedbed.facts.patterns import WRITES_RESIDUAL, Roles, canonical, writes_residual
from seedbed.facts.roles import roles_of

__all__ = ["canonical", "parameter_facts", "part_of", "parts_of"]


class _Found(NamedTuple):
    """A parameter before it is divided into its blocks."""

    fact: ParameterFact
    roles: Roles
    owner: nn.Module
    told: bool  # by the user, not by the table


def parameter_facts(module: nn.Module, roles: Mapping[str, str] | None = None) -> list[ParameterFact]:
    """One fact per distinct parameter of ``module``, in the order of ``named_parameters``.

    ``roles`` maps regular expressions on canonical names to roles, for what the table does not know; it is asked first.
    Raises InputError naming every parameter that no rule covers, a parameter without elements, a wrong role, a pattern
    that is none or is found nowhere, a matrix's role told of a vector, and two modules of one canonical name.
    """
    roles = {} if roles is None else roles
    _check_roles(roles)
    modules = _canonical_modules(module)
    names: dict[int, list[str]] = {}  # id of the tensor -> all its names
    for path, owner in modules.items():
        for attribute, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
            names.setdefault(id(parameter), []).append(f"{path}.{attribute}" if path else attribute)
    _check_found(roles, list(names.values()))
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


def parts_of(facts: Iterable[ParameterFact], tensors: Mapping[str, Tensor]) -> Iterator[tuple[ParameterFact, Tensor]]:
    """Every part of the parameters of ``facts`` with its view of ``tensors``, which has one for each by its name."""
    for fact in facts:
        for part in fact.parts():
            yield part, part_of(tensors[fact.name], part)


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
    own = told or roles_of(speaker, parameter, modules)
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


def _canonical_modules(module: nn.Module) -> dict[str, nn.Module]:
    """Every module by its canonical name; of a wrapper and what it wraps, which have one name, the inner."""
    if not isinstance(module, nn.Module):
        raise InputError(f"parameter_facts: takes a module, not {module!r}")
    modules: dict[str, nn.Module] = {}
    paths: dict[str, str] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        name = canonical(f"{path}.").rstrip(".")
        if name in paths:
            other = paths[name]
            wraps = not other or path.startswith(f"{other}.")
            if not wraps or any(True for _ in modules[name].parameters(recurse=False)):
                raise InputError(
                    f"{type(module).__name__}: {other or 'the model itself'} and {path} have one name once what "
                    "wrappers add to names, such as 'module.', is left out; rename one"
                )
        modules[name], paths[name] = each, path
    return modules


def _check_roles(roles: Mapping[str, str]) -> None:
    if not isinstance(roles, Mapping) or not all(isinstance(pattern, str) for pattern in roles):
        raise InputError(f"roles: takes {{regular expression: role}}, not {roles!r}")
    for pattern, role in roles.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(
                f"roles: '{pattern}' is no regular expression ({error}); write '.*' for anything, '\\.' for a dot"
            ) from None
        if role not in ROLES:
            raise InputError(f"roles: unknown role '{role}'; known: {', '.join(ROLES)}")


def _check_found(roles: Mapping[str, str], names: list[list[str]]) -> None:
    """Refuse a pattern that says nothing; ``names`` are those of each parameter, and the first is asked for."""
    firsts = [first for first, *_ in names]
    for pattern in roles:
        if any(re.search(pattern, first) for first in firsts):
            continue
        near = [first for first, *others in names if any(re.search(pattern, other) for other in others)]
        if not near:
            words = {word for first in firsts for word in (first, *first.split("."))}
            near = [first for word in get_close_matches(pattern, words, n=1) for first in firsts if word in first][:3]
        hint = f"; meant: {', '.join(near)}" if near else "; names are those of the state dict"
        raise InputError(f"roles: '{pattern}' is found in no parameter's name{hint}")


def _owner(name: str, modules: Mapping[str, nn.Module]) -> nn.Module:
    return modules[name.rpartition(".")[0]]


def _branch(fact: ParameterFact) -> tuple[str, str]:
    """The attention or feed-forward network that a map is part of: its module, and which of the two."""
    return holder(fact.name), fact.role.partition(".")[0]
