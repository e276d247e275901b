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

__all__ = ["from_tree", "load", "parse_override", "parse_yaml", "section_at", "to_yaml", "with_init"]

# A section whose tag changes starts afresh: the options of the old law or schedule mean nothing to the new one.
# With each tag the value of a section that does not set it.
TAGS = {
    ("init", "law"): InitConfig.model_fields["law"].default,
    ("optim", "schedule", "kind"): WsdSchedule.model_fields["kind"].default,
}


def load(path: str | Path | None, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """See :meth:`seedbed.config.Config.load`."""
    tree = None if path is None else parse_file(path)
    if tree is None:  # no file, or an empty one
        tree = {}
    if not isinstance(tree, dict):
        found = type(tree).__name__
        raise InputError(f"{path}: a configuration is a mapping of sections (model:, init:, ...), not a {found}")
    origin: dict[tuple[str, ...], str] = {}
    # tags first: setting one starts its section afresh, which must not undo another override of this call
    for override in sorted(overrides, key=lambda override: _keys(override) not in TAGS):
        origin[_apply(tree, override)] = f"override '{override}'"
    return from_tree(tree, str(path) if path is not None else "configuration", origin)


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


def _keys(override: str) -> tuple[str, ...]:
    return tuple(override.partition("=")[0].strip().split("."))


def parse_override(override: str) -> tuple[tuple[str, ...], Any]:
    """The path and the value of ``section.key=value``. Raises InputError."""
    keys, (_, equals, text) = _keys(override), override.partition("=")
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


def _apply(tree: dict[str, Any], override: str) -> tuple[str, ...]:
    keys, value = parse_override(override)
    node = section_at(tree, keys, f"override '{override}'")
    if keys in TAGS and node.get(keys[-1], TAGS[keys]) != value:
        if "mup" in (value, node.get(keys[-1])):
            forget(tree, usual=value == "mup")
        node.clear()
    node[keys[-1]] = value
    return keys


def _filled(tree: Any, model: type[BaseModel]) -> Any:
    """``tree`` with {} where it has a section without a value: ``train:`` sets nothing."""
    if not isinstance(tree, dict):
        return tree
    sections = {key: section(model, key) for key in tree}
    return {
        key: value if (inner := sections[key]) is None else _filled({} if value is None else value, inner)
        for key, value in tree.items()
    }
