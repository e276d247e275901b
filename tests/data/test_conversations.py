"""Records with conversations: messages, answers, chosen and rejected replies."""

import json

import pytest
from reading import ANSWERED, CHAT, REPLY, USER, refused

from seedbed.data.document import Conversation
from seedbed.files.jsonl import ReadCounts


@pytest.mark.parametrize("question", ["hi", USER, [USER]])
@pytest.mark.parametrize("answer", ["yes", REPLY, [REPLY]])
def test_an_answer_is_appended_to_a_conversation(read_records, question, answer):
    (document,) = read_records({"q": question, "a": answer}, **ANSWERED)
    assert document.texts == {"text": [[Conversation([USER, REPLY], ["assistant", "tool"], prompt=1)]]}


def test_a_message_keeps_what_the_template_may_read_but_nulls(read_records):
    call = {"id": None, "name": "f"}
    (document,) = read_records({"messages": [REPLY | {"calls": [call], "name": None}]}, **CHAT)
    assert document.texts["text"][0][0].messages == [REPLY | {"calls": [call]}]


@pytest.mark.parametrize("nothing", [{}, {"content": None}])
def test_a_message_that_only_calls_tools_needs_no_content(read_records, nothing):
    call = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    (document,) = read_records({"messages": [USER, call | nothing]}, **CHAT)
    assert document.texts["text"][0][0].messages == [USER, call | {"content": ""}]
    refused(read_records, "", {"messages": [USER]}, {"messages": [USER, {**call, **nothing, "tool_calls": []}]}, **CHAT)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "field 'messages' is an empty list; it needs messages"),
        (None, "field 'messages' is null, not a list of messages or a string"),
        (7, "field 'messages' is a number, not a list of messages or a string"),
        ([USER, "hi"], "message 2 of field 'messages' is a string, not an object with 'role' and 'content'"),
        ([{"content": "hi"}], "message 1 of field 'messages' has no 'role'; the keys there are: content"),
        ([{"from": "a", "value": "b"}], "message 1 of field 'messages' has no 'role'; the keys there are: from, value"),
        ([USER, {"role": "user"}], "message 2 of field 'messages' has no 'content'"),
        ([USER | {"role": 1}], "'role' of message 1 of field 'messages' is a number, not a string"),
        ([USER | {"content": None}], "'content' of message 1 of field 'messages' is null, not a string"),
        ([USER | {"content": [{"type": "text"}]}], "'content' of message 1 of field 'messages' is a list"),
        ([USER | {"x": json.loads("[" * 700 + "]" * 700)}], "message 1 of field 'messages' is nested too deep"),
    ],
)
def test_bad_messages(read_records, messages, problem):
    refused(read_records, problem, {"messages": [USER]}, {"messages": messages}, **CHAT)


def test_a_missing_answer(read_records):
    refused(read_records, "no field 'a'; the keys there are: q", {"q": "hi", "a": "yes"}, {"q": "hi"}, **ANSWERED)
    refused(read_records, "field 'a' is null, not a list", {"q": "hi", "a": None}, **ANSWERED)


def test_blank_conversations_are_empty_texts(read_records):
    counts = ReadCounts()
    assert read_records({"messages": " "}, {"messages": [USER | {"content": ""}]}, counts=counts, **CHAT) == []
    assert counts.skipped == {"empty text": 2}
    assert len(read_records({"messages": [{"role": "system", "content": ""}, USER]}, **CHAT)) == 1


def test_chosen_and_rejected_replies(read_records):
    outputs = {
        name: {"sections": [{"field": "q", "action": "by_role", "answer": name}]} for name in ("chosen", "rejected")
    }
    (document,) = read_records(
        {"q": "hi", "chosen": "yes", "rejected": "no"},
        outputs=outputs,
        chat_template="chatml",
        packing={"strategy": "none"},
    )
    assert document.texts == {
        "chosen": [[Conversation([USER, REPLY], ["assistant"], prompt=1)]],
        "rejected": [[Conversation([USER, REPLY | {"content": "no"}], ["assistant"], prompt=1)]],
    }
