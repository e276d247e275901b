"""A bin as a person reads it says what the batches say: what is predicted, where documents begin, go on and are cut."""

import json

import pytest
from stores import Text, make_store

from seedbed.data.bpe import train_tokenizer
from seedbed.data.look import look_at_bin, look_at_record
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.split import IGNORED
from seedbed.data.store import Store

CHAT = {"sections": [{"field": "messages", "action": "by_role"}], "chat_template": "chatml"}


@pytest.fixture(scope="session")
def chat_tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "tokenizer"
    return train_tokenizer(["question answer " * 9], 270, folder, special_tokens=["<|im_start|>", "<|im_end|>"])


def conversations(path, count=20):
    with open(path, "w", encoding="utf-8") as lines:
        for i in range(count):
            turns = [
                ("user", f"question {i} " * 9),
                ("assistant", f"answer {i} " * (1 + 5 * i % 17)),
                ("user", "thanks " * 5),
            ]
            print(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}), file=lines)


def shown(store, split="train"):
    part, tokenizer = store.split(split), store.tokenizer()
    return [look_at_bin(part, number, tokenizer, store.header["groups"]) for number in range(len(part))]


@pytest.mark.parametrize("strategy", ["simple", "bfd", "bfd_split"])
def test_what_is_shown_as_predicted_is_predicted(strategy, chat_tokenizer, tmp_path):
    """In masked conversations that go on in other bins, at borders of every kind."""
    conversations(tmp_path / "a.jsonl")
    tree = {"sources": [str(tmp_path / "a.jsonl")], "tokenizer": str(chat_tokenizer.folder), "heldout": 0, **CHAT}
    tree["packing"] = {"strategy": strategy, "seq_len": 48}
    header = prepare(spec_from(tree, "test"), tmp_path / "s", workers=1)
    store = Store(tmp_path / "s")
    bins = shown(store)
    stream, segments = header["streams"]["train"], [segment for one in bins for segment in one.segments]
    runs = [run for segment in segments for run in segment.runs]
    assert sum(run.tokens for run in runs) == stream["tokens"]
    assert sum(run.tokens for run in runs if run.predicted) == stream["predicted"]
    assert sum(segment.position == 0 for segment in segments) == stream["documents"]
    assert sum(segment.goes_on for segment in segments) == sum(segment.position > 0 for segment in segments)
    assert any(segment.goes_on for segment in segments) == (strategy != "bfd")
    assert sum(segment.cut_tokens for segment in segments) == stream["cut_tokens"]
    assert sum(one.padding for one in bins) == stream["padding"]
    targets = int((store.split("train").windows(range(len(bins))).targets != IGNORED).sum())
    assert targets == stream["predicted"]


def test_control_tokens_are_told_from_text_that_spells_them(chat_tokenizer, tmp_path):
    text = "so <|eos|> and <|im_end|> are spelled"
    make_store([Text("a", text, "train")], chat_tokenizer, tmp_path / "s", 64, 0)
    ((segment,),) = [one.segments for one in shown(Store(tmp_path / "s"))]
    assert [(run.text, run.predicted, run.control) for run in segment.runs] == [
        ("<|bos|>", False, True),
        (text, True, False),
        ("<|eos|>", True, True),
    ]


def test_a_record_shows_its_outputs_and_numbers(chat_tokenizer, tmp_path):
    rows = [{"q": f"question {i}", "answers": [f"yes {i}", f"no {i}"], "rewards": [1, i]} for i in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {
        "sources": [str(tmp_path / "a.jsonl")],
        "tokenizer": str(chat_tokenizer.folder),
        "heldout": 0,
        "packing": {"strategy": "none", "seq_len": 64},
        "outputs": {
            "prompt": {"sections": [{"field": "q"}]},
            "responses": {"sections": [{"field": "answers"}], "each": True},
            "rewards": {"numbers": "rewards"},
        },
    }
    prepare(spec_from(tree, "test"), tmp_path / "s", workers=1)
    store = Store(tmp_path / "s")
    record = look_at_record(store, "train", 2, ["responses", "rewards"])
    assert (record.number, list(record.outputs), record.outputs["rewards"]) == (2, ["responses", "rewards"], [1.0, 2.0])
    assert [one.segments[0].runs[1].text for one in record.outputs["responses"]] == ["yes 2", "no 2"]
    with pytest.raises(IndexError):
        look_at_record(store, "train", 3, ["prompt"])
