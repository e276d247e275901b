"""The account of a corpus that benchmarks/conservation.py gives, on a few documents of each domain."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from seedbed.data import plan
from seedbed.data.bpe import train_tokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def account(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return runpy.run_path(str(BENCHMARKS / "conservation.py"))["balance"]


@pytest.fixture
def few_of_each(small_corpus, tmp_path) -> list[Path]:
    """Of each domain some documents, of which every fifth comes twice and every seventh is too short to be kept."""
    files = []
    for file in small_corpus:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:30] if line]
        rows += rows[::5] + [{**row, "text": row["text"][:50]} for row in rows[::7]]
        files.append(tmp_path / file.name)
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts = (json.loads(line)["text"] for file in files for line in file.open(encoding="utf-8"))
    train_tokenizer(texts, 512, tmp_path / "tokenizer")
    return files


@pytest.mark.realdata
@pytest.mark.usefixtures("no_flush")
def test_every_document_and_token_of_ten_domains_is_accounted_for(account, few_of_each, tmp_path):
    rows = list(account(few_of_each, tmp_path))
    assert all(row.balances for row in rows), [row for row in rows if not row.balances]
    assert sum(row.what.startswith("simple, decoded text") for row in rows) == 10
    counts = {row.what: row.told for row in rows}
    assert counts["rejected by cleaning and filters"].documents >= 10
    assert counts["removed as copies"].documents >= 10
    assert counts["encoded"].tokens == counts["planned"].tokens > 0


@pytest.mark.realdata
@pytest.mark.usefixtures("no_flush")
def test_a_document_that_takes_the_place_of_another_shows(account, few_of_each, tmp_path, monkeypatch):
    whole = plan.read_sequences

    def mixed_up(*arguments: Any) -> plan.Sequences:
        found = whole(*arguments)
        found.start[:2] = found.start[1::-1]
        return found

    monkeypatch.setattr(plan, "read_sequences", mixed_up)
    assert any(not row.balances for row in account(few_of_each, tmp_path))
