"""The text of a configuration: JSON, and the part of YAML 1.2 that JSON's values need.

PyYAML reads YAML 1.1, where ``yes`` is a boolean, ``010`` is eight and ``1:30`` is ninety. Here plain scalars are read
by the core schema of YAML 1.2 (section 10.3.2), and what a configuration has no use for is refused: anchors, aliases,
merge keys, tags, deep nesting.
"""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from seedbed.errors import InputError

MAX_CHARACTERS, MAX_DEPTH = 2**20, 20

INT = re.compile(r"[-+]?[0-9]+$|0o[0-7]+$|0x[0-9a-fA-F]+$")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$")
SCALARS = (
    ("null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", INT, list("-+0123456789")),
    ("float", FLOAT, list("-+.0123456789")),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: ClassVar = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        for named, what in (("anchor", "anchors and aliases (& and *)"), ("tag", "tags (!)")):
            if getattr(event, named, None) is not None:
                self._refuse(f"{what} are not read; write the value out, or quote text", event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} deep; a configuration is a few sections of plain values", event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _refuse(self, problem: str, at: yaml.Event | yaml.Node) -> None:
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                self._refuse(f"the key {key!r} is not text", key_node)
            if key in result:
                self._refuse(f"the key '{key}' stands twice", key_node)
            result[key] = self.construct_object(value_node, deep=True)
        return result

    def integer(self, node: yaml.ScalarNode) -> int:
        text = node.value
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        try:
            return int(text if base == 10 else text[2:], base)
        except ValueError:  # Python bounds the digits that it turns into a number
            raise yaml.MarkedYAMLError(problem="a number with too many digits", problem_mark=node.start_mark) from None


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 or 1.2 would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _pattern, _first in SCALARS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.integer)


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML; raises InputError ``where:line: problem``."""
    return _parse(text, where)[0]


def parse_value(text: str, where: str) -> Any:
    """Parse the value of an override: YAML in which nothing may be cut off as a comment."""
    value, end = _parse(text, where)
    if text[end:].strip():
        quoted = json.dumps(text.strip(), ensure_ascii=False)
        raise InputError(f"{where}: YAML reads '{text[end:].strip()}' as a comment; put text in quotes: '{quoted}'")
    to_json(value, where)
    return value


def parse_file(path: str | Path) -> Any:
    """The values of a JSON file (by its name) or a YAML file; None where it is empty."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such configuration file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder; name the configuration file in it") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start + 1} of the file; save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if Path(path).suffix.lower() != ".json" or not text.strip():
        return parse_yaml(text, str(path))
    try:
        # YAML's reader finds keys that stand twice and deep nesting; JSON's strings hold no tabs, YAML's layout neither
        parse_yaml(text.replace("\t", " "), str(path))
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: {error.msg}") from None


def to_json(value: Any, where: str) -> bytes:
    """The value as JSON; raises InputError where JSON or UTF-8 has no such value."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: text with {error.object[error.start]!a}, which is no character") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None


def write_yaml(tree: dict[str, Any]) -> str:
    """YAML that :func:`parse_yaml` reads to equal values."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _parse(text: str, where: str) -> tuple[Any, int]:
    """The value, and the index in ``text`` where it ends."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{where}: longer than {MAX_CHARACTERS:,} characters; this is no configuration")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, 0 if text.lstrip().startswith("#") else len(text)
        return loader.construct_document(node), node.end_mark.index
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        raise InputError(f"{where}{f':{mark.line + 1}' if mark else ''}: {' '.join(problem.split())}") from None
