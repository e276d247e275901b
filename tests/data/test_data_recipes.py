"""The recipes of recipes/data load, and do what their comments say."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from seedbed.data.bpe import train_tokenizer
from seedbed.data.prepare import prepare
from seedbed.data.spec import load_spec, read_tree, spec_from
from seedbed.data.tokenizer import Tokenizer

RECIPES = Path(__file__).parents[2] / "recipes" / "data"
LETTERS = "abcdefghijklmnopqrstuvwxyz山水月風雲雨"


@pytest.fixture(scope="module")
def chat_tokenizer(tmp_path_factory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("chat") / "tokenizer"
    return train_tokenizer([LETTERS] * 3, 300, folder, special_tokens=["<|im_start|>", "<|im_end|>"])


def run(name: str, sources: list[Path], tokenizer: Tokenizer, out: Path, **more: Any) -> dict[str, Any]:
    """The header of the store of a recipe, from other sources."""
    tree = read_tree(RECIPES / f"{name}.yaml") | {"sources": [str(path) for path in sources]} | more
    return prepare(spec_from(tree | {"tokenizer": str(tokenizer.folder)}, name), out, workers=1)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def prose(seed: int, words: int = 60) -> str:
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(LETTERS, k=rng.randint(2, 8))) for _ in range(words))


def test_every_recipe_loads():
    assert [load_spec(path).packing.strategy for path in sorted(RECIPES.glob("*.yaml"))] == ["none", "bfd_split", "bfd"]


def test_pretraining(chat_tokenizer, tmp_path):
    weights = load_spec(RECIPES / "pretrain.yaml").mixture.weights
    assert sum(weights.values()) == pytest.approx(1)
    rows = [
        {"text": prose(40 * number + i), "domain": domain, "lang": "en"}
        for number, domain in enumerate(weights) for i in range(40)
    ]  # fmt: skip
    copies = [rows[0], rows[1] | {"text": f"{rows[1]['text']} end"}]
    bad = [{"text": "the same again " * 40, "domain": "math"}, {"text": "short", "domain": "math"}, 7]
    header = run("pretrain", [write(tmp_path / "a.jsonl", [*rows, *copies, *bad])], chat_tokenizer, tmp_path / "s")
    assert header["duplicates"] == {"exact": 1, "near": 1}
    assert header["skipped"] == {"characters repeat": 1, "'text' has fewer than 50 characters": 1, "not an object": 1}
    taken = {share["domain"]: share for share in header["mixture"]}
    total = sum(share["tokens"] for share in taken.values())
    for domain, weight in weights.items():
        assert taken[domain]["tokens"] / total == pytest.approx(weight, abs=0.01)
        assert taken[domain]["epochs"] <= 4
    assert header["streams"]["train"]["cut_tokens"] == 0


def conversation(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def test_conversations(chat_tokenizer, tmp_path):
    rows = [conversation(f"What of {i}?", prose(i)) for i in range(60)]
    marked = conversation("Where?", f"<p>See **here**, [the page](https://example.org/a):</p> {prose(70)}")
    copy, short, song = ("What of 3?", f"{prose(3)} too"), ("Hm?", "No."), ("Sing", "la la la " * 60)
    others = [conversation(*turns) for turns in (copy, short, song)]
    header = run("sft", [write(tmp_path / "a.jsonl", [*rows, marked, *others])], chat_tokenizer, tmp_path / "s")
    assert header["duplicates"] == {"exact": 0, "near": 1}
    assert header["skipped"] == {"'messages' has fewer than 50 characters": 1, "characters repeat": 1}
    assert {step: header["repaired"][f"changed by {step}"] for step in ("html", "urls", "markdown")} == {
        "html": 1, "urls": 1, "markdown": 1,
    }  # fmt: skip
    assert sum(stream["documents"] for stream in header["streams"].values()) == 61
    assert 0 < header["streams"]["train"]["predicted"] < header["streams"]["train"]["tokens"]
    assert len((tmp_path / "s" / "rejects.jsonl").read_text().splitlines()) == 2


def test_pairs(chat_tokenizer, tmp_path):
    rows = [{"prompt": f"What of {i}?", "chosen": prose(i), "rejected": prose(100 + i)} for i in range(40)]
    long = {"prompt": "And?", "chosen": prose(1, 4000), "rejected": "No."}
    header = run("dpo", [write(tmp_path / "a.jsonl", [*rows, rows[0], long])], chat_tokenizer, tmp_path / "s")
    assert header["duplicates"]["exact"] == 1
    assert header["skipped"] == {"longer than packing.seq_len": 1}
    assert sum(header["records"].values()) == 40
    assert header["streams"]["train/chosen"]["bins"] == header["streams"]["train/rejected"]["bins"]


@pytest.mark.realdata
def test_little_good_text_is_rejected(real_data, small_corpus, chat_tokenizer, tmp_path):
    """The shares that the comments name."""
    header = run("pretrain", small_corpus, chat_tokenizer, tmp_path / "p")
    assert header["skipped"] == {"characters repeat": 4, "words repeat": 2}
    assert header["warnings"] == []
    header = run("sft", [real_data / "evals" / "sft" / "sft_small.jsonl"], chat_tokenizer, tmp_path / "c")
    assert header["skipped"] == {
        "'messages' has fewer than 50 characters": 14, "characters repeat": 2, "words repeat": 1,
    }  # fmt: skip
    pairs = [real_data / "evals" / "preference" / f"dpo_{lang}.jsonl" for lang in ("en", "zh")]
    header = run("dpo", pairs, chat_tokenizer, tmp_path / "d", packing={"strategy": "none", "seq_len": 8192})
    assert set(header["skipped"]) <= {"longer than packing.seq_len"}
