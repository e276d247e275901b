"""The code that ships with an exported model: flat files that import torch and Transformers alone.

``hub/shipped/`` is written by hand. The layers below it are taken from the sources of ``model/``, definition by
definition, so that what a model was trained with and what is shipped cannot drift apart.
"""

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

CONFIGURATION_FILE, MODEL_FILE, LAYERS_FILE = "configuration_seedbed.py", "modeling_seedbed.py", "layers_seedbed.py"
FLAT_FILES = (CONFIGURATION_FILE, MODEL_FILE, LAYERS_FILE)
_SHIPPED, _OURS = "seedbed.hub.shipped.", "seedbed."
_HEADER = '''"""The layers of a Seedbed model, taken from the sources of seedbed.model (Apache-2.0)."""

'''
_REMARK = re.compile(r"  # (?:pyright: ignore|noqa).*$", re.MULTILINE)


def flat_files() -> dict[str, str]:
    """The files by name: configuration, model, and the layers that the model is built of."""
    layers = _Layers()
    files = {name: _shipped(name, layers) for name in (CONFIGURATION_FILE, MODEL_FILE)}
    return {name: _REMARK.sub("", text) for name, text in {**files, LAYERS_FILE: layers.text()}.items()}


def _shipped(name: str, layers: "_Layers") -> str:
    """A file of ``hub/shipped/``, in which the imports from our package, one block of lines, are those of files beside
    it; what comes from ``model/`` is put among the layers."""
    module = _Module(_SHIPPED + name.removesuffix(".py"))
    nodes = [n for n in module.tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith(_OURS)]
    lines, taken = [], []
    for node in nodes:
        assert node.module is not None
        names = [alias.name for alias in node.names]
        if node.module.startswith(_SHIPPED):
            lines.append(f"from .{node.module.removeprefix(_SHIPPED)} import {', '.join(names)}")
            continue
        for used in names:
            layers.take(node.module, used)
        taken += names
    if taken:
        lines.append(f"from .{LAYERS_FILE.removesuffix('.py')} import {', '.join(sorted(taken))}")
    if nodes:
        module.lines[nodes[0].lineno - 1 : nodes[-1].end_lineno] = lines
    return "\n".join(module.lines) + "\n"


class _Module:
    """A source file of ours, as text and as a tree."""

    def __init__(self, name: str):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        self.lines, self.tree = source.splitlines(), ast.parse(source)

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """What stands at the top by name, with the docstring behind it."""
        found: dict[str, list[ast.stmt]] = {}
        name = None
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
            elif name is not None and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                found[name].append(node)
                continue
            else:
                continue
            found[name] = [node]
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, ast.alias]]:
        """The module and the name there of what is imported at the top; without a module it is one itself."""
        found = {}
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                found |= {alias.asname or alias.name: (module, alias) for alias in node.names}
        return found

    def source(self, nodes: list[ast.stmt]) -> str:
        """The text of a definition, with its decorators and the remark above it."""
        first = nodes[0]
        decorators = first.decorator_list if isinstance(first, ast.FunctionDef | ast.ClassDef) else []
        start = min(node.lineno for node in (first, *decorators)) - 1
        while self.lines[start - 1].startswith("#"):
            start -= 1
        return "\n".join(self.lines[start : nodes[-1].end_lineno])


@dataclass
class _Layers:
    """Definitions of ``model/`` with all that they use, each behind what it uses."""

    modules: dict[str, _Module] = field(default_factory=dict)
    taken: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> its module and its text
    imports: set[tuple[str, str]] = field(default_factory=set)  # module, name there; of other libraries

    def take(self, module: str, name: str) -> None:
        if name in self.taken:
            assert self.taken[name][0] == module, f"{name} is defined twice"
            return
        if module not in self.modules:
            self.modules[module] = _Module(module)
        source = self.modules[module]
        nodes = source.definitions[name]
        self.taken[name] = (module, "")
        for used in sorted(_free(nodes[0])):
            if used in source.definitions:
                self.take(module, used)
            elif used in source.imports:
                other, alias = source.imports[used]
                if other.startswith(_OURS):
                    assert alias.asname is None
                    self.take(other, alias.name)
                else:
                    self.imports.add((other, f"{alias.name} as {alias.asname}" if alias.asname else alias.name))
        del self.taken[name]  # behind what it uses
        self.taken[name] = (module, source.source(nodes))

    def text(self) -> str:
        """All of it as one file."""
        plain = sorted(f"import {name}" for module, name in self.imports if not module)
        modules = sorted({module for module, _ in self.imports if module})
        froms = [f"from {m} import {', '.join(sorted(n for o, n in self.imports if o == m))}" for m in modules]
        definitions = "\n\n\n".join(text for _, text in self.taken.values())
        return _HEADER + "\n".join([*plain, *froms]) + "\n\n\n" + definitions + "\n"


def _free(node: ast.stmt) -> set[str]:
    """Names that a definition uses and does not get as an argument; annotations in quotes are not looked at."""
    names = {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}
    return names - {found.arg for found in ast.walk(node) if isinstance(found, ast.arg)}
