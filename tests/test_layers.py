"""A file imports only from rooms above its own (docs/architecture.md, "Rooms")."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "seedbed"
FREE = {"api", "cli", "__init__", "__main__"}


def rooms() -> list[str]:
    """The rooms in order, read from the list in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"## Rooms.*?```\n(.*?)```", text, re.DOTALL)
    assert block
    return [re.split(r"[/.\s]", line, maxsplit=1)[0] for line in block[1].splitlines() if re.match(r"\w", line)]


def imported_rooms(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "seedbed"}
    return {name.split(".")[1] for name in names if name.startswith("seedbed.")}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def test_every_room_is_in_the_list():
    assert {room_of(path) for path in FILES} - {"__init__", "__main__"} == set(rooms())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_above(path):
    order, room = rooms(), room_of(path)
    if room in FREE:
        return
    for other in imported_rooms(path.read_text(encoding="utf-8")):
        assert order.index(other) <= order.index(room), f"{path.name} of {room}/ imports {other}/, which is below it"


def test_the_check_sees_a_wrong_import():
    assert imported_rooms("from seedbed import cli\nimport seedbed.train.loop\nfrom seedbed.eval import x") == {
        "cli",
        "train",
        "eval",
    }


def test_the_model_imports_torch_alone():
    allowed = {"torch", "collections", "dataclasses", "itertools", "typing", "math", "seedbed"}
    for path in (PACKAGE / "model").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guarded = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            if id(node) in guarded or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name}: {name}"
                assert not name.startswith("seedbed") or name.startswith("seedbed.model"), f"{path.name}: {name}"
