"""A real corpus without a download: prose and source of the running Python's standard library."""

import ast
import hashlib
import re
import sysconfig
import tokenize
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import TypedDict


class Record(TypedDict):
    """A line of a JSONL file."""

    id: str
    text: str
    domain: str
    lang: str
    split: str


HELDOUT_SHARE = 0.06
_TESTS = {"test", "tests", "idle_test"}
# installed by others; tables of characters; the module of the help topics, which are documents of their own
_LEFT_OUT = {"site-packages", "dist-packages", "encodings", "pydoc_data"}


def stdlib_records(max_bytes: int = 6_000_000) -> Iterator[Record]:
    """Help topics, docstrings and module sources of this Python, each text once, with splits set.

    Ids: "topics/NAME", a topic of `help()`; "NAME.py:doc", the docstrings of a module; "NAME.py", its source
    without them. Tests, installed packages, the character tables of `encodings` and build scripts are left out. The
    unit is the top-level module or package. Units come in the order of a hash of their names, and one that does not
    fit into what is left of ``max_bytes`` (source bytes, topics first) is passed over. By the same rule the units
    hold out up to 6 % of the bytes taken, so no package is on both sides; the topics train. The result depends on
    the Python version alone. Reads no network.
    """
    topics = list(_topics())
    topic_bytes = sum(len(topic["text"].encode("utf-8")) for topic in topics)
    modules = _modules()
    sizes = {name: sum(file.stat().st_size for _, file in files) for name, files in modules.items()}
    taken = _fitting(sizes, max_bytes - topic_bytes)
    heldout = _fitting(taken, int(HELDOUT_SHARE * (topic_bytes + sum(taken.values()))))
    seen: set[bytes] = set()
    yield from topics
    for name in taken:
        split = "heldout" if name in heldout else "train"
        for inside, file in modules[name]:
            with tokenize.open(file) as opened:
                prose, source = separate_docstrings(opened.read())
            for identity, domain, text in ((f"{inside}:doc", "docstrings", prose), (inside, "source", source)):
                digest = hashlib.sha256(text.encode("utf-8")).digest()
                if text.strip() and digest not in seen:
                    seen.add(digest)
                    yield Record(id=identity, text=text, domain=domain, lang="en", split=split)


def _fitting(sizes: dict[str, int], room: int) -> dict[str, int]:
    """The entries that fit into ``room``, taken in the order of their names' hashes."""
    taken = {}
    for name in sorted(sizes, key=lambda name: hashlib.sha256(name.encode("utf-8")).digest()):
        if sizes[name] <= room:
            taken[name] = sizes[name]
            room -= sizes[name]
    return taken


def _topics() -> Iterator[Record]:
    """Topics by name. Sections of the reference lie inside one another: a paragraph is kept in the longest topic only.

    A topic of which less than half is left is dropped: its text stands elsewhere, what is left are headings.
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    kept = {}
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        fresh = []
        for paragraph in topics[name].split("\n\n"):
            if (mark := " ".join(paragraph.split())) not in seen:
                seen.add(mark)
                fresh.append(paragraph)
        text = "\n\n".join(fresh)
        if 2 * len(text) >= len(topics[name]) and text.strip():
            kept[name] = text
    return (
        Record(id=f"topics/{name}", text=kept[name], domain="topics", lang="en", split="train") for name in sorted(kept)
    )


def _modules() -> dict[str, list[tuple[str, Path]]]:
    """Source files of each top-level module or package: (path inside the library, file), sorted by name."""
    root = Path(sysconfig.get_path("stdlib"))
    modules = {}
    for top in sorted(root.iterdir()):
        # names that are no identifiers hold build scripts; _sysconfigdata has paths of this machine
        if top.name in _LEFT_OUT or not top.stem.isidentifier() or top.name.startswith("_sysconfigdata"):
            continue
        files = sorted(top.rglob("*.py")) if top.is_dir() else [top] if top.suffix == ".py" else []
        inside = [(file.relative_to(root), file) for file in files]
        if kept := [(path.as_posix(), file) for path, file in inside if not _TESTS.intersection(path.parts)]:
            modules[top.stem] = kept
    return modules


def separate_docstrings(source: str) -> tuple[str, str]:
    """(docstrings in order, joined by blank lines; the source without them).

    A body that is nothing but a docstring becomes `...`, so the source still parses. A file that does not parse is
    returned whole, as source.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return "", source
    # as ast counts: lines end at line feeds alone, columns are bytes
    lines = [line.encode("utf-8") for line in re.findall(r"[^\n]*\n|[^\n]+", source)]
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(tree) if isinstance(node, nodes) and ast.get_docstring(node) is not None]
    documented.sort(key=lambda node: node.body[0].lineno)
    prose = [cleandoc(ast.get_docstring(node) or "") for node in documented]
    for node in reversed(documented):  # from the end, so that earlier positions stay right
        text = node.body[0]
        assert text.end_lineno is not None
        first, last = text.lineno - 1, text.end_lineno - 1
        before, after = lines[first][: text.col_offset], lines[last][text.end_col_offset :]
        alone = len(node.body) == 1 and not isinstance(node, ast.Module)
        rest = before + (b"..." if alone else b"") + after.lstrip(b"; \t" if not alone else b"")
        lines[first : last + 1] = [rest] if rest.strip() else []
    return "\n\n".join(text for text in prose if text), b"".join(lines).decode("utf-8")
