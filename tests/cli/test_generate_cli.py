"""seedbed generate: prompts and files of prompts, in order, kept when it is interrupted, nothing dropped unseen."""

import json
import re
from pathlib import Path

import pytest
from chat_templates import CHATML_PLAIN, chat_tokenizer
from tiny import config, quiet

from seedbed.api import fit
from seedbed.config import Config
from seedbed.data.tokenizer import load_tokenizer
from seedbed.hub.models import LanguageModel, open_model
from seedbed.model import Decoder
from seedbed.serve import requests
from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import text_ids

TEXTS = ["the small stone", "river", "the blue", "a seed grows", "", "中 stone"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("generate") / "r"
    fit(config(tiny_store, folder), quiet, page=False)
    return folder


@pytest.fixture
def prompts(tmp_path) -> Path:
    return lines(tmp_path / "in.jsonl", [{"id": i, "prompt": text} for i, text in enumerate(TEXTS)])


def lines(file: Path, rows: list) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_prompts_are_shown_with_what_follows(seedbed, run):
    model = open_model(run)
    alone = generate(model, [text_ids(model.tokenizer, "the small")], Options(5, 1.0), [3])[0]
    code, out, _ = seedbed("generate", run, "the small", "--max-new-tokens", 5, "--temperature", 1, "--seed", 3)
    assert (code, out) == (0, f"the small{alone.text}\n")
    options = ("--max-new-tokens", 5, "--temperature", 1, "--n", 2, "--seed", 2, "--json")
    code, out, _ = seedbed("generate", run, "a seed", "the small", *options)
    written = json.loads(out)["written"]
    assert [(row["prompt"], row["seed"]) for row in written] == [
        ("a seed", 2), ("a seed", 3), ("the small", 4), ("the small", 5),
    ]  # fmt: skip
    code, out, _ = seedbed("generate", run, "the small", *options[:4], "--seed", 4)
    assert out == f"the small{written[2]['text']}\n"
    assert "--- 2, seed 1, length\n" in seedbed("generate", run, "a", "the", *options[:2])[1]


def test_a_file_is_answered_in_order_whatever_the_batch(seedbed, run, prompts, tmp_path):
    outs = [tmp_path / "out.jsonl", tmp_path / "single.jsonl"]
    for out, batch in zip(outs, (4, 1), strict=True):
        options = ("--max-new-tokens", 6, "--batch", batch, "--stop", "seed", "--json")
        code, told, _ = seedbed("generate", run, "--input", prompts, "-o", out, *options)
        assert code == 0
    rows = read(outs[0])
    assert rows == read(outs[1])
    assert [(row["id"], row["prompt"], row["seed"]) for row in rows] == [(i, t, i) for i, t in enumerate(TEXTS)]
    assert all(row["finish_reason"] in ("stop", "length") and 1 <= row["tokens"] <= 6 for row in rows)
    assert rows[4]["prompt_tokens"] == 1
    found = json.loads(told)
    assert (found["rows"], found["answers"], found["too_long"]) == (6, 6, 0)
    assert found["tokens"] == sum(row["tokens"] for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "single.jsonl"]


def test_interrupted_it_goes_on(seedbed, run, prompts, tmp_path, monkeypatch):
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    command = ("generate", run, "--input", prompts, "--max-new-tokens", 4, "--batch", 2, "--n", 2)
    assert seedbed(*command, "-o", whole)[0] == 0
    made = []

    def until(stop: int | None):
        def counted(model, ids, *rest):
            if stop is not None and len(made) >= stop:
                raise KeyboardInterrupt
            made.extend(ids)
            return generate(model, ids, *rest)

        monkeypatch.setattr(requests, "generate", counted)

    until(4)
    code, _, err = seedbed(*command, "-o", out)
    assert code == 130
    assert f"kept in {out}.parts, and the same command goes on" in err
    assert not out.exists()
    parts = tmp_path / "out.jsonl.parts" / "parts.jsonl"
    kept = parts.read_text()
    assert len(kept.splitlines()) == 5
    parts.write_text(kept[:-9])  # the last line is damaged: done again
    code, _, err = seedbed(*command, "--seed", 1, "-o", out)
    assert code == 2
    assert "another model, input or options" in err
    assert parts.read_text() == kept[:-9]
    until(None)
    monkeypatch.setattr(requests, "TELL_S", -1.0)
    made.clear()
    code, told, err = seedbed(*command, "-o", out)
    assert code == 0, err
    assert "3 answers are there" in err
    assert re.search(r"of 12 answers, [\d,]+ tokens/s, about \d+ s left", err)
    assert len(made) == 9
    assert out.read_text() == whole.read_text()
    assert told.startswith("6 prompts, 12 answers, ")
    assert not parts.parent.exists()
    assert seedbed(*command, "-o", out)[0] == 2
    assert seedbed(*command, "-o", out, "--overwrite")[0] == 0


def test_prompts_that_are_too_long_are_dropped_or_cut_and_counted(seedbed, run, tmp_path):
    """Case 44; the model reads 32 tokens."""
    texts = ["the small stone", "the river " * 40 + "blue"]
    source, out = lines(tmp_path / "in.jsonl", [{"prompt": text} for text in texts]), tmp_path / "out.jsonl"
    command = ("generate", run, "--input", source, "-o", out, "--max-new-tokens", 4)
    code, told, _ = seedbed(*command)
    assert code == 0
    assert "2 prompts, 1 answers" in told
    assert "too long and dropped: 1" in told
    short, long = read(out)
    assert (long["text"], long["finish_reason"], long["tokens"]) == (None, "too_long", 0)
    assert long["prompt_tokens"] > 32
    code, told, _ = seedbed(*command, "--too-long", "cut", "--overwrite")
    assert "too long and cut: 1" in told
    first, cut = read(out)
    assert first == short
    assert (cut["finish_reason"], cut["tokens"]) in [("length", 4), ("stop", cut["tokens"])]
    model = open_model(run)
    ids = text_ids(model.tokenizer, texts[1])
    assert cut["text"] == generate(model, [[ids[0], *ids[-27:]]], Options(4), [1])[0].text
    code, _, err = seedbed("generate", run, texts[1])
    assert code == 2
    assert "the model reads at most 31; shorten it" in err


def test_conversations_end_with_the_turn(seedbed, run, tmp_path, monkeypatch):
    model = open_model(run)
    tokenizer = chat_tokenizer(model.tokenizer, tmp_path / "t", CHATML_PLAIN, control=["<|im_start|>", "<|im_end|>"])
    source = lines(tmp_path / "in.jsonl", [{"messages": [{"role": "user", "content": "the stone"}]}, {"prompt": "a"}])
    code, _, err = seedbed("generate", run, "--input", source)
    assert code == 2
    assert "the tokenizer has none of its own" in err
    module = Decoder(Config.load(None, [f"model.vocab_size={tokenizer.vocab_size}"]).model)
    asked = requests.requests(LanguageModel("m", module, tokenizer, 32), read(source), Options(4), "tokenizer", "drop")
    assert tokenizer.decode(asked[0].ids) == "user\nthe stone\nassistant\n"
    assert asked[0].ends == {tokenizer.eos_id, tokenizer.token_id("<|im_end|>")}
    assert asked[1].ends == {tokenizer.eos_id}
    assert load_tokenizer(tmp_path / "t").chat_template == CHATML_PLAIN


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"text": "a"}, ["in.jsonl:2", "prompt or messages", "not text"]),
        ({"prompt": "a", "messages": []}, ["in.jsonl:2", "either prompt or messages"]),
        ({"prompt": 7}, ["in.jsonl:2", "prompt", "text"]),
        ({"prompt": "a", "seed": 1}, ["in.jsonl:2", "overwrite seed"]),
        ({"messages": []}, ["in.jsonl:2", "messages"]),
        ({"messages": [{"role": "user"}]}, ["in.jsonl:2", "role and content"]),
        ([1], ["in.jsonl:2", "object"]),
        ({"prompt": "\ud83d"}, ["in.jsonl:2", "lone surrogate"]),
        ({"prompt": "a", "note": "\ud83d"}, ["in.jsonl:2", "lone surrogate"]),
    ],
)
def test_wrong_rows_are_named(seedbed, tmp_path, row, parts):
    source = lines(tmp_path / "in.jsonl", [{"prompt": "a"}, row])
    code, _, err = seedbed("generate", "nowhere", "--input", source, "-o", tmp_path / "out.jsonl")
    assert code == 2
    assert len(err.splitlines()) == 1
    for part in parts:
        assert part in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["a", "--input", "in.jsonl"], "not both"),
        (["--top-p", "0"], "top_p 0.0"),
        (["--stop", ""], "not empty"),
        (["--input", "empty.jsonl"], "holds no row"),
        (["--input", "nothing.jsonl"], "nothing.jsonl"),
        (["--input", "empty.jsonl", "-o", "empty.jsonl"], "exists already"),
    ],
)
def test_wrong_options_are_one_line(seedbed, tmp_path, monkeypatch, arguments, part):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    code, out, err = seedbed("generate", "nowhere", *arguments)
    assert (code, out) == (2, "")
    assert part in err
    assert len(err.splitlines()) == 1
