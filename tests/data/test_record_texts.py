"""What is done to a record's texts, and what a document is made of: sections, several outputs."""

import pytest
from reading import CHAT, read, refused, texts

from seedbed.data.document import Conversation, Piece, dump
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts

# what is done to a text


def test_lone_surrogates_are_replaced_everywhere_and_counted(tmp_path):
    """Case 6: a pair is an emoji and stays; what is not read does not count."""
    (tmp_path / "a.jsonl").write_text(
        r'{"id": "\udc00", "text": "a\ud83db \ud83d\ude00\ud83d", "domain": "\ud83d", "lang": "\ud83d", "m": "\ud83d"}'
    )
    counts = ReadCounts()
    (document,) = read(tmp_path / "a.jsonl", counts)
    assert document[:1] + document[2:4] == ("\ufffd", "\ufffd", "\ufffd")
    assert texts([document]) == ["a\ufffdb \U0001f600\ufffd"]
    assert counts.repaired == {"lone surrogates replaced by U+FFFD": 5}


def test_lone_surrogates_anywhere_in_a_message(read_records):
    message = {"role": "\ud83d", "content": "\ud83d", "calls": [{"\ud83d": ["\ud83d", 1]}]}
    counts = ReadCounts()
    (document,) = read_records({"messages": [message]}, counts=counts, **CHAT)
    (conversation,) = document.texts["text"][0]
    mended = {"role": "\ufffd", "content": "\ufffd", "calls": [{"\ufffd": ["\ufffd", 1]}]}
    assert conversation == Conversation([mended], ["assistant"])
    assert counts.repaired == {"lone surrogates replaced by U+FFFD": 4}
    dump(document).encode()


def test_every_text_is_cleaned_and_counted_by_step(read_records):
    counts = ReadCounts()
    found = read_records(
        {"text": "e\u0301"}, {"text": "\u00e9"}, {"text": "\ufb01"}, counts=counts, clean=["nfc", "nfkc"]
    )
    assert texts(found) == ["\u00e9", "\u00e9", "fi"]
    assert counts.repaired == {"changed by nfc": 1, "changed by nfkc": 1}
    message = {"role": "user", "content": "e\u0301", "name": "e\u0301"}
    (document,) = read_records({"messages": [message]}, clean=["nfc"], **CHAT)
    assert document.texts["text"][0][0].messages == [message | {"content": "\u00e9"}]


def test_lengths_are_counted_after_cleaning_in_characters(read_records):
    records = [{"text": text} for text in ("ab", "abc", "e\u0301\u5b57\U0001f600", "abcd", "abcde")]
    counts = ReadCounts()
    found = read_records(*records, counts=counts, clean=["nfc"], min_chars=3, max_chars=4)
    assert texts(found) == ["abc", "\u00e9\u5b57\U0001f600", "abcd"]
    assert counts.skipped == {"'text' has fewer than 3 characters": 1, "'text' has more than 4 characters": 1}


def test_lengths_of_every_field_and_of_a_conversation_as_a_whole(read_records):
    sections = [{"field": "q", "action": "mask"}, {"field": "a"}]
    counts = ReadCounts()
    assert (
        read_records({"q": "abc", "a": "ab"}, {"q": "a", "a": "abc"}, counts=counts, sections=sections, min_chars=3)
        == []
    )
    assert counts.skipped == {"'a' has fewer than 3 characters": 1, "'q' has fewer than 3 characters": 1}
    record = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]}
    assert len(read_records(record, min_chars=3, max_chars=3, **CHAT)) == 1
    assert read_records(record, min_chars=4, **CHAT) == []
    assert read_records(record, max_chars=2, **CHAT) == []


# sections


def test_sections_in_order_trained_or_masked(read_records):
    (document,) = read_records({"a": "A", "q": "Q", "n": ""}, sections=[
        {"field": "q", "action": "mask"}, {"field": "n"}, {"field": "a"}, {"field": "q"}
    ])  # fmt: skip
    assert document.texts == {"text": [[Piece("Q", False), Piece("", True), Piece("A", True), Piece("Q", True)]]}


# several outputs

GROUP = {
    "outputs": {
        "prompt": {"sections": [{"field": "p", "action": "mask"}]},
        "responses": {"sections": [{"field": "r"}], "each": True},
        "rewards": {"numbers": "w"},
    },
    "packing": {"strategy": "none"},
}


def test_outputs_of_texts_lists_and_numbers(read_records):
    (document,) = read_records({"p": "P", "r": ["a", "b"], "w": [1, -0.5]}, **GROUP)
    assert document.texts == {"prompt": [[Piece("P", False)]], "responses": [[Piece("a", True)], [Piece("b", True)]]}
    assert document.numbers == {"rewards": [1.0, -0.5]}
    assert [type(number) for number in document.numbers["rewards"]] == [float, float]
    (document,) = read_records({"p": "P", "r": ["a", "b"], "w": 3}, **GROUP)
    assert document.numbers == {"rewards": [3.0]}
    (document,) = read_records({"p": "P", "r": ["a", "b"], "w": [True, False]}, **GROUP)
    assert document.numbers == {"rewards": [1.0, 0.0]} and type(document.numbers["rewards"][0]) is float


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"w": [1.0]}, "lists of different lengths, which belong together: responses 2, rewards 1"),
        ({"r": ["a"]}, "lists of different lengths"),
        ({"r": "a"}, "field 'r' is a string, not a list with items"),
        ({"r": []}, "field 'r' is an empty list, not a list with items"),
        ({"r": ["a", 7]}, "item 2 of field 'r' is a number, not a string"),
        ({"w": "1"}, "field 'w' is a string, not a number"),
        ({"w": None}, "field 'w' is null, not a number"),
        ({"w": []}, "field 'w' is an empty list, not a number"),
        ({"w": [1, float("nan")]}, "item 2 of field 'w' is nan, which is not finite"),
        ({"w": [float("-inf"), 1]}, "item 1 of field 'w' is -inf, which is not finite"),
        ({"w": [1, 10**400]}, "item 2 of field 'w' is inf, which is not finite"),
    ],
)
def test_bad_groups(read_records, change, problem):
    record = {"p": "P", "r": ["a", "b"], "w": [1, 2]}
    if "nan" in problem:  # which is equal to nothing, so that the kept record cannot be compared
        with pytest.raises(InputError, match=problem):
            read_records(record | change, **GROUP)
    else:
        refused(read_records, problem, record, record | change, **GROUP)


def test_one_empty_output_leaves_the_record_out(read_records):
    counts = ReadCounts()
    assert read_records({"p": "P", "r": ["a", " "], "w": [1, 2]}, counts=counts, **GROUP) == []
    assert counts.skipped == {"empty text": 1}
