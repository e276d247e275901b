"""From a YAML or JSON file and dotted overrides to a Config, with errors that say where."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from seedbed.config.options import suggest
from seedbed.config.tree import Config
from seedbed.errors import InputError

# A section whose tag changes starts afresh: the options of the old law or schedule mean nothing to the new one.
TAGS = {("init", "law"), ("optim", "schedule", "kind")}


class _Loader(yaml.SafeLoader):
    """YAML 1.2's reading of numbers (``1e-12`` is a float), and no key twice."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is not text", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"the key '{key}' stands twice", problem_mark=key_node.start_mark)
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML (and so JSON); raises InputError ``where:line: problem``."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        raise InputError(f"{where}{f':{mark.line + 1}' if mark else ''}: {' '.join(problem.split())}") from None


def load(path: str | Path | None, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """See :meth:`seedbed.config.Config.load`."""
    tree: Any = {}
    if path is not None:
        try:
            tree = parse_yaml(Path(path).read_text(encoding="utf-8-sig"), str(path)) or {}
        except FileNotFoundError:
            raise InputError(f"{path}: no such configuration file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a configuration: {error}") from None
        if not isinstance(tree, dict):
            raise InputError(f"{path}: a configuration is a mapping of sections (model:, init:, ...), not {tree!r}")
    origin: dict[tuple[str, ...], str] = {}
    # tags first: setting one starts its section afresh, which must not undo another override of this call
    for override in sorted(overrides, key=lambda override: _keys(override) not in TAGS):
        origin[_apply(tree, override)] = f"override '{override}'"
    return from_tree(tree, str(path) if path is not None else "configuration", origin)


def from_tree(tree: dict[str, Any], where: str, origin: dict[tuple[str, ...], str] | None = None) -> Config:
    """Validate plain values; ``where`` names the source in errors, ``origin`` the override that set a path."""
    try:
        # JSON mode: strict about types, and a list is the only way to write a tuple
        return Config.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        raise InputError(_explain(error, where, origin or {})) from None
    except TypeError as error:  # a date or a set, which YAML can hold and JSON cannot
        raise InputError(f"{where}: {error}; write text in quotes") from None


def to_yaml(config: Config) -> str:
    """The complete configuration as YAML; it loads to an equal Config."""
    return yaml.safe_dump(config.dump(), sort_keys=False, allow_unicode=True)


def _keys(override: str) -> tuple[str, ...]:
    return tuple(override.partition("=")[0].strip().split("."))


def _apply(tree: dict[str, Any], override: str) -> tuple[str, ...]:
    keys, (_, equals, text) = _keys(override), override.partition("=")
    if not equals or not all(keys):
        raise InputError(f"override '{override}': write section.key=value, for example optim.lr=1e-3")
    value = parse_yaml(text, f"override '{override}'")
    if isinstance(value, date):
        raise InputError(f"override '{override}': {'.'.join(keys)}: a date is text only in quotes: \"'{text}'\"")
    node = tree
    for depth, key in enumerate(keys[:-1]):
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise InputError(f"override '{override}': {'.'.join(keys[: depth + 1])} is a value, not a section")
    if keys in TAGS and node.get(keys[-1], value) != value:
        node.clear()
    node[keys[-1]] = value
    return keys


def _explain(error: ValidationError, where: str, origin: dict[tuple[str, ...], str]) -> str:
    """One line for the first problem, with the count of the others."""
    problems = error.errors()
    first = problems[0]
    places = [[str(part) for part in problem["loc"] if not _is_branch(part, problem["loc"])] for problem in problems]
    loc = places[0]
    source = _source(loc, first["type"], first["msg"], where, origin)
    dotted = ".".join(loc)
    kind, message = first["type"], first["msg"]
    if kind == "extra_forbidden":
        message = f"unknown key; {suggest(loc[-1], _known_keys(loc[:-1]))}"
    elif kind == "value_error":
        message = message.removeprefix("Value error, ")
    elif kind == "literal_error" and isinstance(first["input"], str):
        words = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected", "")))
        message = f"unknown value '{first['input']}'; {suggest(first['input'], words)}"
        if len(words) > 1:
            message += f" ({' | '.join(words)})"
    elif kind == "union_tag_invalid":
        context = first.get("ctx", {})
        tag, words = str(context.get("tag")), re.findall(r"'([^']*)'", str(context.get("expected_tags")))
        dotted, message = dotted + ".kind", f"unknown value '{tag}'; {suggest(tag, words)} ({' | '.join(words)})"
    elif str(first["loc"][-1]).startswith("constrained-"):
        message = f"write a whole number of steps (10) or a share of the run (0.02), not {first['input']!r}"
    elif kind not in ("law", "law_option", "missing"):
        message = f"{message[0].lower()}{message[1:]}, not {first['input']!r}"
    others = len({tuple(place) for place in places}) - 1
    more = f" (and {others} more)" if others else ""
    return f"{source}: {dotted + ': ' if dotted else ''}{message}{more}"


def _source(loc: list[str], kind: str, message: str, where: str, origin: dict[tuple[str, ...], str]) -> str:
    """The last override that set the place or something in it; of a section whose fields do not fit each other, one
    that set a field which the message names."""
    for key in reversed(origin):
        shared = min(len(key), len(loc))
        if list(key[:shared]) == loc[:shared] and (kind != "value_error" or len(key) <= len(loc) or key[-1] in message):
            return origin[key]
    return where


def _is_branch(part: Any, loc: tuple[Any, ...]) -> bool:
    """Pydantic puts the branch of a union ('wsd', 'constrained-float') into the path; a reader's path has none."""
    index = loc.index(part)
    if index < len(loc) - 1:
        return index > 0 and loc[:index] == ("optim", "schedule")
    return index > 0 and part in ("int", "float", "constrained-int", "constrained-float", "tuple")


def _known_keys(loc: list[str]) -> list[str]:
    model: Any = Config
    for key in loc:
        annotation = model.model_fields[key].annotation
        options = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        model = options[0] if options else None
        if model is None:
            return []
    return list(model.model_fields)
