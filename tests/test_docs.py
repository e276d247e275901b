"""The documents execute: every command and every snippet in README.md, CONTRIBUTING.md and docs/ runs as written."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import sentences

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKS = {"bench": re.compile(r"benchmarks/"), "slow": re.compile(r"seedbed (train|quickstart|study run)")}


def blocks(language: str) -> list[tuple[str, str]]:
    """(document:line, text) of every fenced block of a language."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{document.name}:{line}", match[1]))
    return found


def shell(text: str) -> list[str]:
    return [line.split("   #")[0].strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder like a checkout with a text of one's own in my/."""
    for name in ("recipes", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "my").mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in sentences(400, seed=2)]
    (tmp_path / "my" / "text.jsonl").write_text("".join(lines))
    return tmp_path


def run(commands: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def commands() -> list:
    """The commands of each document, one after the other; those of `make` apart, which would run the tests again."""
    found: dict[str, str] = {}
    for where, text in blocks("sh"):
        if not text.startswith("make "):
            document = where.partition(":")[0]
            found[document] = found.get(document, "") + text
    marks = {d: next((m for m, pattern in MARKS.items() if pattern.search(text)), None) for d, text in found.items()}
    return [
        pytest.param(text, id=document, marks=[getattr(pytest.mark, mark)] if (mark := marks[document]) else [])
        for document, text in found.items()
    ]


@pytest.mark.parametrize("text", commands())
def test_commands(text, workplace):
    run(shell(text), workplace)


@pytest.mark.parametrize(("where", "text"), [pytest.param(w, t, id=w) for w, t in blocks("python")])
def test_snippets(where, text, workplace):
    subprocess.run([sys.executable, "-c", text], cwd=workplace, check=True)


@pytest.mark.parametrize("text", [pytest.param(t, id=w) for w, t in blocks("yaml") if t.startswith("sources:")])
def test_specifications(text, workplace):
    (workplace / "spec.yaml").write_text(text)
    train = "seedbed tokenizer train my/*.jsonl --vocab-size 300 -o runs/data/tokenizer"
    run([train, "seedbed data prepare --spec spec.yaml -o runs/store", "seedbed data inspect runs/store"], workplace)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for d in DOCUMENTS for t in re.findall(r"\bmake ([a-z-]+)\b", d.read_text(encoding="utf-8"))}
    assert {"quickstart", "test", "check"} <= named & targets
    assert {
        target for _, text in blocks("sh") for target in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)
    } <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert target.startswith("http") or (document.parent / target).exists(), target
