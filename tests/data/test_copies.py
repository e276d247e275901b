"""Which documents are copies: exact ones train the same in every respect, near ones have nearly the same text."""

import json
from itertools import combinations
from typing import Any

import pytest
from chat_templates import chat_tokenizer
from raw_records import prepared

from seedbed.data.document import Conversation, Document, Encoded, Piece, content, identity, text_document, text_hash

pytestmark = pytest.mark.usefixtures("no_flush")

USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}


@pytest.fixture(scope="module")
def chat_tok(tokenizer, tmp_path_factory):
    return chat_tokenizer(tokenizer, tmp_path_factory.mktemp("copies") / "tokenizer")


def document(texts, numbers=None) -> Document:
    return Document("", "", "", "", None, texts, numbers or {})


def same_text(*sequences) -> Document:
    return document({"text": list(sequences)})


DIFFERENT = {
    "one text": same_text([Piece("abc", True)]),
    "masked": same_text([Piece("abc", False)]),
    "begins with what is read": same_text([Piece("a", False), Piece("bc", True)]),
    "ends with what is read": same_text([Piece("a", True), Piece("bc", False)]),
    "begins elsewhere": same_text([Piece("ab", False), Piece("c", True)]),
    "two texts": same_text([Piece("a", True), Piece("bc", True)]),
    "two sequences": same_text([Piece("a", True)], [Piece("bc", True)]),
    "another output": document({"a": [[Piece("a", True)]], "b": [[Piece("bc", True)]]}),
    "reward": document({"text": [[Piece("abc", True)]]}, {"reward": [1.0]}),
    "other reward": document({"text": [[Piece("abc", True)]]}, {"reward": [2.0]}),
    "user": same_text([Conversation([{"role": "user", "content": "abc"}], ["assistant"])]),
    "system": same_text([Conversation([{"role": "system", "content": "abc"}], ["assistant"])]),
    "trained user": same_text([Conversation([{"role": "user", "content": "abc"}], ["user"])]),
    "prompt": same_text([Conversation([{"role": "user", "content": "abc"}], ["user"], 1)]),
    "tools": same_text([Conversation([{"role": "user", "content": "abc"}], ["user"], 1, [{"name": "f"}])]),
    "call": same_text([Conversation([{"role": "user", "content": "abc", "tool_calls": [1]}], ["user"], 1)]),
}


def of(one: Document) -> bytes:
    return identity(one, text_hash(content(one)))


def test_documents_of_one_text_that_train_differently_differ():
    assert {content(one) for one in DIFFERENT.values()} == {"abc"}
    for (name, one), (other_name, other) in combinations(DIFFERENT.items(), 2):
        assert of(one) != of(other), (name, other_name)
    for one in DIFFERENT.values():
        assert len(of(one)) == 16
        named = one._replace(id="another", where="b:1", domain="d", lang="l", split="train")
        assert of(named) == of(one)
    assert of(text_document("a", "abc")) == text_hash("abc")


REWARDED: dict[str, Any] = {
    "outputs": {"reply": {"sections": [{"field": "text"}]}, "reward": {"numbers": "w"}},
    "packing": {"strategy": "none", "seq_len": 64},
}
MASKED = {"sections": [{"field": "q", "action": "mask"}, {"field": "a"}]}
CHAT = {"sections": [{"field": "messages", "action": "by_role"}], "chat_template": "chatml"}
CASES = {
    "reward": (REWARDED, [{"text": "abc", "w": 1}, {"text": "abc", "w": 2}]),
    "border": (MASKED, [{"q": "ab", "a": "c"}, {"q": "a", "a": "bc"}]),
    "role": (CHAT, [{"messages": [USER, REPLY]}, {"messages": [USER | {"role": "system"}, REPLY]}]),
}


@pytest.mark.parametrize("case", CASES)
def test_exact_copies_are_equal_in_all_that_is_trained(case, chat_tok, tmp_path):
    spec, records = CASES[case]
    copies = [*records, *(record | {"id": "copy"} for record in records)]
    store = prepared(tmp_path / "s", chat_tok, copies, dedup={"exact": True}, **spec)
    assert store.header["records"]["train"] == 2
    assert store.header["duplicates"] == {"exact": 2, "near": 0}
    removals = [json.loads(line) for line in (tmp_path / "s" / "duplicates.jsonl").read_text().splitlines()]
    places = [(row["removed"].rpartition(":")[2], row["kept"].rpartition(":")[2]) for row in removals]
    assert places == [("3", "1"), ("4", "2")]


@pytest.mark.parametrize("case", CASES)
def test_near_copies_are_by_text_alone(case, chat_tok, tmp_path):
    spec, records = CASES[case]
    store = prepared(tmp_path / "s", chat_tok, records, dedup={"exact": True, "near": {}}, **spec)
    assert store.header["records"]["train"] == 1
    assert store.header["duplicates"] == {"exact": 0, "near": 1}


def test_removals_of_both_kinds_are_listed_in_order(chat_tok, tmp_path):
    text = "The ferry leaves at seven, and whoever comes late waits for the next one until noon."
    texts = [text, text + "!", "another", text, text + "?", "another"]
    prepared(tmp_path / "s", chat_tok, [{"text": one} for one in texts], dedup={"exact": True, "near": {}})
    rows = [json.loads(line) for line in (tmp_path / "s" / "duplicates.jsonl").read_text().splitlines()]
    places = [(row["removed"].rpartition(":")[2], row["kept"].rpartition(":")[2]) for row in rows]
    assert places == [("2", "1"), ("4", "1"), ("5", "1"), ("6", "3")]
    assert [row["jaccard"] == row["estimate"] == 1 for row in rows] == [False, True, False, True]


def test_what_has_one_text_is_on_one_side_whatever_it_trains(chat_tok, tmp_path):
    records = [{"text": f"text {i // 2}", "w": i % 2} for i in range(40)]
    store = prepared(tmp_path / "s", chat_tok, records, dedup={"exact": True}, heldout=0.3, **REWARDED)
    sides = {}
    for split, count in store.header["records"].items():
        for i in range(count):
            (reply,) = store.record(split, i)["reply"]
            assert isinstance(reply, Encoded)
            sides.setdefault(tuple(reply.ids), []).append(split)
    assert len(sides) == 20
    assert all(len(splits) == 2 and len(set(splits)) == 1 for splits in sides.values())
    assert {splits[0] for splits in sides.values()} == {"train", "heldout"}
