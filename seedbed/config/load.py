"""From a file and dotted overrides to a Config, with errors that say where."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from seedbed.config.explain import explain, section
from seedbed.config.optim import WsdSchedule
from seedbed.config.parametrization import forget
from seedbed.config.reader import parse_file, parse_value, parse_yaml, to_json, write_yaml
from seedbed.config.tree import Config, InitConfig
from seedbed.errors import InputError

__all__ = [
    "from_tree", "load", "parse_override", "parse_yaml", "read_tree", "section_at", "to_yaml", "with_init",
    "with_values",
]  # fmt: skip

# A section whose tag changes starts afresh: the options of the old law or schedule mean nothing to the new one.
# With each tag the value of a section that does not set it.
TAGS = {
    ("init", "law"): InitConfig.model_fields["law"].default,
    ("optim", "schedule", "kind"): WsdSchedule.model_fields["kind"].default,
}


def load(path: str | Path | None, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """See :meth:`seedbed.config.Config.load`."""
    values = [(*parse_override(override), f"override '{override}'") for override in overrides]
    return with_values(read_tree(path), values, "configuration" if path is None else str(path))


def read_tree(path: str | Path | None) -> dict[str, Any]:
    """The plain values of a configuration's file, none of them checked; {} where there is no file, or an empty one."""
    tree = None if path is None else parse_file(path)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        found = type(tree).__name__
        raise InputError(f"{path}: a configuration is a mapping of sections (model:, init:, ...), not a {found}")
    return tree


def with_values(tree: dict[str, Any], values: Sequence[tuple[tuple[str, ...], Any, str]], where: str) -> Config:
    """The configuration of ``tree``, which is changed, with ``values`` in place, in order: the path of each, the value,
    and what errors call it. ``where`` names the tree in errors.
    """
    origin: dict[tuple[str, ...], str] = {}
    # tags first: setting one starts its section afresh, which must not undo another value of this call
    for keys, value, told in sorted(values, key=lambda of: of[0] not in TAGS):
        _apply(tree, keys, value, told)
        origin[keys] = told
    return from_tree(tree, where, origin)


def from_tree(tree: dict[str, Any], where: str, origin: dict[tuple[str, ...], str] | None = None) -> Config:
    """Validate plain values; ``where`` names the source in errors, ``origin`` the override that set a path."""
    try:
        # JSON mode: strict about types, and a list is the only way to write a tuple
        return Config.model_validate_json(to_json(_filled(tree, Config), where))
    except ValidationError as error:
        raise InputError(explain(error, where, origin or {})) from None


def with_init(config: Config, init: InitConfig) -> Config:
    """``config`` with another initialization and the multipliers that go with it. Raises InputError as loading does."""
    tree = config.dump() | {"init": init.model_dump()}
    if "mup" in (config.init.law, init.law):
        forget(tree)
    return from_tree(tree, "configuration")


def to_yaml(config: Config) -> str:
    """The complete configuration as YAML; it loads to an equal Config."""
    return write_yaml(config.dump())


def parse_override(override: str) -> tuple[tuple[str, ...], Any]:
    """The path and the value of ``section.key=value``. Raises InputError."""
    path, equals, text = override.partition("=")
    keys = tuple(path.strip().split("."))
    if not equals or not all(keys):
        raise InputError(f"override '{override}': write section.key=value, for example optim.lr=1e-3")
    return keys, parse_value(text, f"override '{override}'")


def section_at(tree: dict[str, Any], keys: Sequence[str], what: str) -> dict[str, Any]:
    """The section of ``tree`` in which the last of ``keys`` is to be set, made where it is missing.

    Raises InputError, beginning with ``what``, where a value stands in its place.
    """
    for depth, key in enumerate(keys[:-1]):
        if tree.get(key) is None:
            tree[key] = {}
        tree = tree[key]
        if not isinstance(tree, dict):
            raise InputError(f"{what}: {'.'.join(keys[: depth + 1])} is a value, not a section")
    return tree


def _apply(tree: dict[str, Any], keys: tuple[str, ...], value: Any, told: str) -> None:
    node = section_at(tree, keys, told)
    if keys in TAGS and node.get(keys[-1], TAGS[keys]) != value:
        if "mup" in (value, node.get(keys[-1])):
            forget(tree, usual=value == "mup")
        node.clear()
    node[keys[-1]] = value


def _filled(tree: Any, model: type[BaseModel]) -> Any:
    """``tree`` with {} where it has a section without a value: ``train:`` sets nothing. One that may be missing as a
    whole stays null."""
    if not isinstance(tree, dict):
        return tree
    filled = {}
    for key, value in tree.items():
        inner = section(model, key)
        if value is None and inner is not None and model.model_fields[key].default is not None:
            value = {}
        filled[key] = value if inner is None else _filled(value, inner)
    return filled
