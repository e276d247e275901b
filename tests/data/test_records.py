import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbed.data.document import Conversation, Document, Piece, dump, parse, text_document
from seedbed.data.inputs import list_inputs
from seedbed.data.records import documents
from seedbed.data.spec import spec_from
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts


def read(path, counts=None, source=None, **fields):
    """Documents of one source under a specification with ``fields``."""
    spec = spec_from({"sources": [{"path": str(path)} | (source or {})], "tokenizer": "t"} | fields, "spec.yaml")
    counts = ReadCounts() if counts is None else counts
    return [document for file in list_inputs(spec.sources) for document in documents(file, spec, counts)]


@pytest.fixture
def made(tmp_path):
    """Writes records and reads them as documents."""

    def make(*records, counts=None, source=None, **fields):
        path = tmp_path / "web.1.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return read(path, counts, source, **fields)

    return make


def refused(made, problem, *records, reason=None, **fields):
    """The records are refused at the last one under "strict", and only it is left out and counted under "skip"."""
    with pytest.raises(InputError) as caught:
        made(*records, **fields)
    message = str(caught.value)
    assert f"web.1.jsonl:{len(records)}: {problem}" in message
    assert "\n" not in message
    kept = []
    counts = ReadCounts(keep=kept.append)
    assert len(made(*records, counts=counts, on_bad="skip", **fields)) == len(records) - 1
    assert sum(counts.skipped.values()) == 1
    assert reason is None or counts.skipped == {reason: 1}
    assert [(reject["record"], reject["where"].rpartition(":")[2]) for reject in kept] == [
        (records[-1], str(len(records)))
    ]


def texts(found):
    return [document.texts["text"][0][0].text for document in found]


# where a document's names come from


def test_a_record_becomes_a_document(made, tmp_path):
    record = {"id": "a", "text": "x", "domain": "en", "lang": "de", "more": [1, {"text": 2}]}
    wanted = Document("a", f"{tmp_path}/web.1.jsonl:1", "en", "de", None, {"text": [[Piece("x", True)]]}, {})
    assert made(record) == [wanted]
    assert parse(dump(wanted)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("a", "a"), (7, "7"), (1.5, "1.5"), (None, None), ("", None), (float("nan"), None)],
)
def test_ids_come_from_the_record_or_the_line(made, tmp_path, value, wanted):
    (document,) = made({"id": value, "text": "x"})
    assert document.id == (wanted or f"{tmp_path}/web.1.jsonl:1")


def test_domains_come_from_the_source_the_record_or_the_file(made):
    for value, stated, wanted in (("en", "my", "my"), ("en", None, "en"), ("", None, "web"), (7, "my", "my")):
        assert made({"text": "x", "domain": value}, source={"domain": stated})[0].domain == wanted
    assert made({"text": "x"})[0].domain == "web"


def test_languages(made):
    found = made({"text": "x", "lang": "zh"}, {"text": "x", "lang": None}, {"text": "x"})
    assert [document.lang for document in found] == ["zh", "", ""]


NAMES = [("id", "a string or a number"), ("domain", "a string"), ("lang", "a string")]


@pytest.mark.parametrize(("name", "kinds"), NAMES)
def test_a_key_that_the_specification_names_is_in_each_record(made, name, kinds):
    key, place = f"{name}x", f"sources.{name}_field"
    good, source = {"text": "x", key: "a"}, {f"{name}_field": key}
    assert getattr(made(good | {name: "b"}, source=source)[0], name) == "a"
    told = f"no field '{key}'; the keys there are: {key}s, text; did you mean '{key}s'? Name the right one ({place})"
    refused(made, told, good, {"text": "x", f"{key}s": "a"}, reason=f"no field '{key}'", source=source)
    for empty in (None, ""):
        told = f"field '{key}' is empty; the specification names it ({place})"
        refused(made, told, good, good | {key: empty}, reason=f"'{key}' is empty", source=source)
    told = f"field '{key}' ({place}) is a boolean, not {kinds}"
    refused(made, told, good, good | {key: True}, reason=f"'{key}' is not {kinds}", source=source)


@pytest.mark.parametrize(("name", "kinds"), NAMES)
def test_a_key_of_a_usual_name_has_the_usual_type(made, name, kinds):
    for value, kind in ((True, "a boolean"), (["x"], "a list"), *([] if name == "id" else [(7, "a number")])):
        told = f"field '{name}' (sources.{name}_field) is {kind}, not {kinds}"
        refused(made, told, {"text": "x"}, {"text": "x", name: value}, reason=f"'{name}' is not {kinds}")


def test_splits_come_from_the_record_where_the_source_says_so(made):
    records = [{"text": "x", "s": "train"}, {"text": "x", "s": "heldout"}, {"text": "x", "s": None}]
    source = {"split_field": "s"}
    found = made(*records, source=source)
    assert [document.split for document in found] == ["train", "heldout", None]
    assert [document.split for document in made(*records)] == [None] * 3
    refused(made, "field 's' is 'test'; write train or heldout", *records, {"text": "x", "s": "test"}, source=source)
    refused(made, "field 's' is a list; write train", {"text": "x", "s": [1]}, source=source)
    told = "no field 's'; the keys there are: text; name the right one (sources.split_field)"
    refused(made, told, *records, {"text": "x"}, reason="no field 's'", source=source)


def test_a_misspelt_split_is_met_in_a_table_too(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"text": "x", "split": "heldout"}]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet:1: no field 'spilt'; .*; did you mean 'split'\?"):
        read(tmp_path / "a.parquet", source={"split_field": "spilt"})


def test_only_what_a_document_needs_of_a_table(tmp_path):
    row = {"text": "x", "i": 7, "d": "en", "l": "de", "s": "heldout", "other": 1}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    fields = {"id_field": "i", "domain_field": "d", "lang_field": "l", "split_field": "s"}
    (document,) = read(tmp_path / "a.parquet", source=fields)
    assert document[:1] + document[2:5] == ("7", "en", "de", "heldout")


def test_answers_and_numbers_of_a_table(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"q": "hi", "a": "yes", "w": 1.5}]), tmp_path / "a.parquet")
    outputs = {"reply": {"sections": ANSWERED["sections"]}, "reward": {"numbers": "w"}}
    (document,) = read(tmp_path / "a.parquet", outputs=outputs, chat_template="chatml", packing={"strategy": "none"})
    assert document.texts["reply"][0][0].messages == [USER, REPLY]
    assert document.numbers == {"reward": [1.5]}


# records that are none


def test_a_misspelt_field_names_line_and_keys(made):
    """Case 1."""
    refused(
        made,
        "no field 'text'; the keys there are: content, id; name the right one (sections, --field)",
        {"text": "x"},
        {"id": 1, "content": "y"},
        reason="no field 'text'",
    )
    refused(made, "no field 'text'; the keys there are: texts; did you mean 'texts'?", {"texts": "y"})
    refused(made, "no field 'text'; the keys there are: none", {})
    refused(made, r"no field 'text'; the keys there are: '\ud83d', 'a\nb'", {"\ud83d": 1, "a\nb": 2})
    assert texts(made({"content": "y"}, sections=[{"field": "content"}])) == ["y"]


def test_a_misspelt_column_names_all_columns(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"content": "x", "url": "u"}]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet:1: no field 'text'; the keys there are: content, url"):
        read(tmp_path / "a.parquet")


def test_a_few_empty_texts_are_counted_not_fatal(tmp_path):
    """Cases 1 and 2."""
    (tmp_path / "a.jsonl").write_text('\n{"text": ""}\n{"text": " \\n\\t\\u3000"}\n{"text": "x"}\n\n')
    for policy in ("strict", "skip"):
        counts = ReadCounts()
        assert texts(read(tmp_path / "a.jsonl", counts, on_bad=policy)) == ["x"]
        assert counts.skipped == {"blank line": 2, "empty text": 2}
    (tmp_path / "a.jsonl").write_text("\n\n")
    assert read(tmp_path / "a.jsonl") == []


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (7, "a number"),
        (None, "null"),
        (True, "a boolean"),
        ([], "an empty list"),
        ({}, "an empty object"),
        (["x"], "a list"),
    ],
)
def test_a_retyped_field_in_row_500_only(made, value, told):
    """Case 3."""
    records = [{"text": f"t{i}", "extra": i} for i in range(499)] + [{"text": value}]
    refused(made, f"field 'text' is {told}, not a string", *records, reason="'text' is not a string")


def test_an_extra_or_retyped_field_elsewhere_never_matters(made):
    records = [{"text": "x", "meta": 1}, {"text": "x", "meta": {"text": None}}, {"text": "x", "more": [[]]}]
    assert len(made(*records)) == 3


@pytest.mark.parametrize(
    ("record", "told"), [(7, "a number"), ("text", "a string"), (["text"], "a list"), (None, "null")]
)
def test_a_line_that_is_no_object(made, record, told):
    """Case 3."""
    refused(made, f"{told}, not an object with 'text'", {"text": "x"}, record, reason="not an object")


@pytest.mark.parametrize("line", ['{"text": "a"} {"text": "b"}', '{"text": "cut sho'])
def test_two_values_on_a_line_or_a_cut_last_line(tmp_path, line):
    """Case 5."""
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' + line)
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        read(tmp_path / "a.jsonl")
    counts = ReadCounts()
    assert texts(read(tmp_path / "a.jsonl", counts, on_bad="skip")) == ["x"]
    assert counts.skipped == {"not one JSON value": 1}


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


def test_lone_surrogates_anywhere_in_a_message(made):
    message = {"role": "\ud83d", "content": "\ud83d", "calls": [{"\ud83d": ["\ud83d", 1]}]}
    counts = ReadCounts()
    (document,) = made({"messages": [message]}, counts=counts, **CHAT)
    (conversation,) = document.texts["text"][0]
    mended = {"role": "\ufffd", "content": "\ufffd", "calls": [{"\ufffd": ["\ufffd", 1]}]}
    assert conversation == Conversation([mended], ["assistant"])
    assert counts.repaired == {"lone surrogates replaced by U+FFFD": 4}
    dump(document).encode()


def test_every_text_is_cleaned_and_counted_by_step(made):
    counts = ReadCounts()
    found = made({"text": "e\u0301"}, {"text": "\u00e9"}, {"text": "\ufb01"}, counts=counts, clean=["nfc", "nfkc"])
    assert texts(found) == ["\u00e9", "\u00e9", "fi"]
    assert counts.repaired == {"changed by nfc": 1, "changed by nfkc": 1}
    message = {"role": "user", "content": "e\u0301", "name": "e\u0301"}
    (document,) = made({"messages": [message]}, clean=["nfc"], **CHAT)
    assert document.texts["text"][0][0].messages == [message | {"content": "\u00e9"}]


def test_lengths_are_counted_after_cleaning_in_characters(made):
    records = [{"text": text} for text in ("ab", "abc", "e\u0301\u5b57\U0001f600", "abcd", "abcde")]
    counts = ReadCounts()
    found = made(*records, counts=counts, clean=["nfc"], min_chars=3, max_chars=4)
    assert texts(found) == ["abc", "\u00e9\u5b57\U0001f600", "abcd"]
    assert counts.skipped == {"'text' has fewer than 3 characters": 1, "'text' has more than 4 characters": 1}


def test_lengths_of_every_field_and_of_a_conversation_as_a_whole(made):
    sections = [{"field": "q", "action": "mask"}, {"field": "a"}]
    counts = ReadCounts()
    assert made({"q": "abc", "a": "ab"}, {"q": "a", "a": "abc"}, counts=counts, sections=sections, min_chars=3) == []
    assert counts.skipped == {"'a' has fewer than 3 characters": 1, "'q' has fewer than 3 characters": 1}
    record = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]}
    assert len(made(record, min_chars=3, max_chars=3, **CHAT)) == 1
    assert made(record, min_chars=4, **CHAT) == []
    assert made(record, max_chars=2, **CHAT) == []


# sections


def test_sections_in_order_trained_or_masked(made):
    (document,) = made({"a": "A", "q": "Q", "n": ""}, sections=[
        {"field": "q", "action": "mask"}, {"field": "n"}, {"field": "a"}, {"field": "q"}
    ])  # fmt: skip
    assert document.texts == {"text": [[Piece("Q", False), Piece("", True), Piece("A", True), Piece("Q", True)]]}


CHAT = {"sections": [{"field": "messages", "action": "by_role"}], "chat_template": "chatml"}
ANSWERED = {
    "sections": [{"field": "q", "action": "by_role", "roles": ["assistant", "tool"], "answer": "a"}],
    "chat_template": "chatml",
}
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize("question", ["hi", USER, [USER]])
@pytest.mark.parametrize("answer", ["yes", REPLY, [REPLY]])
def test_an_answer_is_appended_to_a_conversation(made, question, answer):
    (document,) = made({"q": question, "a": answer}, **ANSWERED)
    assert document.texts == {"text": [[Conversation([USER, REPLY], ["assistant", "tool"], prompt=1)]]}


def test_a_message_keeps_what_the_template_may_read_but_nulls(made):
    call = {"id": None, "name": "f"}
    (document,) = made({"messages": [REPLY | {"calls": [call], "name": None}]}, **CHAT)
    assert document.texts["text"][0][0].messages == [REPLY | {"calls": [call]}]


@pytest.mark.parametrize("nothing", [{}, {"content": None}])
def test_a_message_that_only_calls_tools_needs_no_content(made, nothing):
    call = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    (document,) = made({"messages": [USER, call | nothing]}, **CHAT)
    assert document.texts["text"][0][0].messages == [USER, call | {"content": ""}]
    refused(made, "", {"messages": [USER]}, {"messages": [USER, {**call, **nothing, "tool_calls": []}]}, **CHAT)


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
def test_bad_messages(made, messages, problem):
    refused(made, problem, {"messages": [USER]}, {"messages": messages}, **CHAT)


def test_a_missing_answer(made):
    refused(made, "no field 'a'; the keys there are: q", {"q": "hi", "a": "yes"}, {"q": "hi"}, **ANSWERED)
    refused(made, "field 'a' is null, not a list", {"q": "hi", "a": None}, **ANSWERED)


def test_blank_conversations_are_empty_texts(made):
    counts = ReadCounts()
    assert made({"messages": " "}, {"messages": [USER | {"content": ""}]}, counts=counts, **CHAT) == []
    assert counts.skipped == {"empty text": 2}
    assert len(made({"messages": [{"role": "system", "content": ""}, USER]}, **CHAT)) == 1


# several outputs

GROUP = {
    "outputs": {
        "prompt": {"sections": [{"field": "p", "action": "mask"}]},
        "responses": {"sections": [{"field": "r"}], "each": True},
        "rewards": {"numbers": "w"},
    },
    "packing": {"strategy": "none"},
}


def test_outputs_of_texts_lists_and_numbers(made):
    (document,) = made({"p": "P", "r": ["a", "b"], "w": [1, -0.5]}, **GROUP)
    assert document.texts == {"prompt": [[Piece("P", False)]], "responses": [[Piece("a", True)], [Piece("b", True)]]}
    assert document.numbers == {"rewards": [1.0, -0.5]}
    assert [type(number) for number in document.numbers["rewards"]] == [float, float]
    (document,) = made({"p": "P", "r": ["a", "b"], "w": 3}, **GROUP)
    assert document.numbers == {"rewards": [3.0]}
    (document,) = made({"p": "P", "r": ["a", "b"], "w": [True, False]}, **GROUP)
    assert document.numbers == {"rewards": [1.0, 0.0]} and type(document.numbers["rewards"][0]) is float


def test_chosen_and_rejected_replies(made):
    outputs = {
        name: {"sections": [{"field": "q", "action": "by_role", "answer": name}]} for name in ("chosen", "rejected")
    }
    (document,) = made(
        {"q": "hi", "chosen": "yes", "rejected": "no"},
        outputs=outputs,
        chat_template="chatml",
        packing={"strategy": "none"},
    )
    assert document.texts == {
        "chosen": [[Conversation([USER, REPLY], ["assistant"], prompt=1)]],
        "rejected": [[Conversation([USER, REPLY | {"content": "no"}], ["assistant"], prompt=1)]],
    }


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
def test_bad_groups(made, change, problem):
    record = {"p": "P", "r": ["a", "b"], "w": [1, 2]}
    if "nan" in problem:  # which is equal to nothing, so that the kept record cannot be compared
        with pytest.raises(InputError, match=problem):
            made(record | change, **GROUP)
    else:
        refused(made, problem, record, record | change, **GROUP)


def test_one_empty_output_leaves_the_record_out(made):
    counts = ReadCounts()
    assert made({"p": "P", "r": ["a", " "], "w": [1, 2]}, counts=counts, **GROUP) == []
    assert counts.skipped == {"empty text": 1}


# every format


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.text(max_size=20),
            "id": st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
            "messages": st.lists(
                st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=9)}),
                min_size=1,
                max_size=3,
            ),
            "other": st.none() | st.integers(-9, 9),
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECORDS)
def test_the_same_documents_from_every_format(tmp_path_factory, records):
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    folder = tmp_path_factory.mktemp("formats")
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    (folder / "a.jsonl").write_bytes(lines)
    (folder / "crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n"))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "a.jsonl.zst").write_bytes(zstandard.compress(lines))
    pq.write_table(pa.Table.from_pylist(records), folder / "a.parquet", row_group_size=3)
    datasets.Dataset.from_list(records).save_to_disk(str(folder / "d"))
    sections = [{"field": "text"}, {"field": "messages", "action": "by_role"}]

    def found(name):
        counts = ReadCounts()
        path = folder / name
        out = read(path, counts, {"domain": "all"}, sections=sections, chat_template="chatml")
        # all but the file's name, which stands in `where` and, of records without an id, in the id
        return [
            document._replace(id=document.id.replace(str(path), ""), where=document.where.replace(str(path), ""))
            for document in out
        ], counts

    wanted, plain = found("a.jsonl")
    for name in ("a.jsonl.gz", "a.jsonl.zst", "a.parquet", "d"):
        assert found(name) == (wanted, plain)
    mended, counts = found("crlf.jsonl")
    assert (mended, counts.skipped) == (wanted, plain.skipped)
    assert counts.repaired == {"byte-order marks removed": 1, "CRLF line ends replaced by LF": len(records)}


def test_a_text_folder_holds_the_same_texts(tmp_path, made):
    (tmp_path / "t" / "b").mkdir(parents=True)
    (tmp_path / "t" / "2.txt").write_text("two\n")
    (tmp_path / "t" / "10.txt").write_text("ten")
    (tmp_path / "t" / "b" / "0.txt").write_text(" \n")
    counts = ReadCounts()
    found = read(tmp_path / "t", counts)
    wanted = [text_document("2.txt", "two\n", domain="t"), text_document("10.txt", "ten", domain="t")]
    assert found == [document._replace(where=f"{tmp_path}/t/{document.id}") for document in wanted]
    assert counts.skipped == {"empty text": 1}


def test_kept_records_of_tables_are_whole(tmp_path):
    row = {"text": "", "url": "u"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    kept = []
    assert read(tmp_path / "a.parquet", ReadCounts(keep=kept.append)) == []
    assert kept == [{"where": f"{tmp_path}/a.parquet:1", "reason": "empty text", "record": row}]


@pytest.mark.realdata
def test_the_real_corpus_is_read_whole(real_data):
    counts = ReadCounts()
    found = read(real_data / "corpus" / "small", counts, {"format": "jsonl"})
    assert len({document.domain for document in found}) == 10
    assert len(found) == sum(len(path.read_bytes().splitlines()) for path in (real_data / "corpus/small").iterdir())
    assert not counts.skipped
    assert not counts.repaired
