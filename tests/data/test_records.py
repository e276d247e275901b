"""Where a document's names come from, and records that are none."""

import pytest
from reading import read, refused, texts

from seedbed.data.document import Document, Piece, dump, parse
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts

# where a document's names come from


def test_a_record_becomes_a_document(read_records, tmp_path):
    record = {"id": "a", "text": "x", "domain": "en", "lang": "de", "more": [1, {"text": 2}]}
    wanted = Document("a", f"{tmp_path}/web.1.jsonl:1", "en", "de", None, {"text": [[Piece("x", True)]]}, {})
    assert read_records(record) == [wanted]
    assert parse(dump(wanted)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("a", "a"), (7, "7"), (1.5, "1.5"), (None, None), ("", None), (float("nan"), None)],
)
def test_ids_come_from_the_record_or_the_line(read_records, tmp_path, value, wanted):
    (document,) = read_records({"id": value, "text": "x"})
    assert document.id == (wanted or f"{tmp_path}/web.1.jsonl:1")


def test_domains_come_from_the_source_the_record_or_the_file(read_records):
    for value, stated, wanted in (("en", "my", "my"), ("en", None, "en"), ("", None, "web"), (7, "my", "my")):
        assert read_records({"text": "x", "domain": value}, source={"domain": stated})[0].domain == wanted
    assert read_records({"text": "x"})[0].domain == "web"


def test_languages(read_records):
    found = read_records({"text": "x", "lang": "zh"}, {"text": "x", "lang": None}, {"text": "x"})
    assert [document.lang for document in found] == ["zh", "", ""]


NAMES = [("id", "a string or a number"), ("domain", "a string"), ("lang", "a string")]


@pytest.mark.parametrize(("name", "kinds"), NAMES)
def test_a_key_that_the_specification_names_is_in_each_record(read_records, name, kinds):
    key, place = f"{name}x", f"sources.{name}_field"
    good, source = {"text": "x", key: "a"}, {f"{name}_field": key}
    assert getattr(read_records(good | {name: "b"}, source=source)[0], name) == "a"
    told = f"no field '{key}'; the keys there are: {key}s, text; did you mean '{key}s'? Name the right one ({place})"
    refused(read_records, told, good, {"text": "x", f"{key}s": "a"}, reason=f"no field '{key}'", source=source)
    for empty in (None, ""):
        told = f"field '{key}' is empty; the specification names it ({place})"
        refused(read_records, told, good, good | {key: empty}, reason=f"'{key}' is empty", source=source)
    told = f"field '{key}' ({place}) is a boolean, not {kinds}"
    refused(read_records, told, good, good | {key: True}, reason=f"'{key}' is not {kinds}", source=source)


@pytest.mark.parametrize(("name", "kinds"), NAMES)
def test_a_key_of_a_usual_name_has_the_usual_type(read_records, name, kinds):
    for value, kind in ((True, "a boolean"), (["x"], "a list"), *([] if name == "id" else [(7, "a number")])):
        told = f"field '{name}' (sources.{name}_field) is {kind}, not {kinds}"
        refused(read_records, told, {"text": "x"}, {"text": "x", name: value}, reason=f"'{name}' is not {kinds}")


def test_splits_come_from_the_record_where_the_source_says_so(read_records):
    records = [{"text": "x", "s": "train"}, {"text": "x", "s": "heldout"}, {"text": "x", "s": None}]
    source = {"split_field": "s"}
    found = read_records(*records, source=source)
    assert [document.split for document in found] == ["train", "heldout", None]
    assert [document.split for document in read_records(*records)] == [None] * 3
    refused(
        read_records, "field 's' is 'test'; write train or heldout", *records, {"text": "x", "s": "test"}, source=source
    )
    refused(read_records, "field 's' is a list; write train", {"text": "x", "s": [1]}, source=source)
    told = "no field 's'; the keys there are: text; name the right one (sources.split_field)"
    refused(read_records, told, *records, {"text": "x"}, reason="no field 's'", source=source)


# records that are none


def test_a_misspelt_field_names_line_and_keys(read_records):
    """Case 1."""
    refused(
        read_records,
        "no field 'text'; the keys there are: content, id; name the right one (sections, --field)",
        {"text": "x"},
        {"id": 1, "content": "y"},
        reason="no field 'text'",
    )
    refused(read_records, "no field 'text'; the keys there are: texts; did you mean 'texts'?", {"texts": "y"})
    refused(read_records, "no field 'text'; the keys there are: none", {})
    refused(read_records, r"no field 'text'; the keys there are: '\ud83d', 'a\nb'", {"\ud83d": 1, "a\nb": 2})
    assert texts(read_records({"content": "y"}, sections=[{"field": "content"}])) == ["y"]


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
def test_a_retyped_field_in_row_500_only(read_records, value, told):
    """Case 3."""
    records = [{"text": f"t{i}", "extra": i} for i in range(499)] + [{"text": value}]
    refused(read_records, f"field 'text' is {told}, not a string", *records, reason="'text' is not a string")


def test_an_extra_or_retyped_field_elsewhere_never_matters(read_records):
    records = [{"text": "x", "meta": 1}, {"text": "x", "meta": {"text": None}}, {"text": "x", "more": [[]]}]
    assert len(read_records(*records)) == 3


@pytest.mark.parametrize(
    ("record", "told"), [(7, "a number"), ("text", "a string"), (["text"], "a list"), (None, "null")]
)
def test_a_line_that_is_no_object(read_records, record, told):
    """Case 3."""
    refused(read_records, f"{told}, not an object with 'text'", {"text": "x"}, record, reason="not an object")


@pytest.mark.parametrize("line", ['{"text": "a"} {"text": "b"}', '{"text": "cut sho'])
def test_two_values_on_a_line_or_a_cut_last_line(tmp_path, line):
    """Case 5."""
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' + line)
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        read(tmp_path / "a.jsonl")
    counts = ReadCounts()
    assert texts(read(tmp_path / "a.jsonl", counts, on_bad="skip")) == ["x"]
    assert counts.skipped == {"not one JSON value": 1}
