import json

import pytest

from seedbed.data.sources import Document, natural_order, read_documents
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_ids_come_from_the_record_or_the_line(tmp_path):
    file = write(
        tmp_path / "shard.one.jsonl", {"id": "a", "text": "x"}, {"id": 7, "text": "y"}, {"text": "z", "id": None}
    )
    assert list(read_documents([file])) == [Document("a", "x"), Document("7", "y"), Document("shard:3", "z")]


def test_misspelt_field_names_file_line_and_keys(tmp_path):
    """Case 1."""
    file = write(tmp_path / "a.jsonl", {"text": "x"}, {"id": 1, "content": "y"})
    with pytest.raises(InputError) as caught:
        list(read_documents([file]))
    message = str(caught.value)
    assert message.startswith(f"{file}:2: no field 'text'")
    assert "content, id" in message
    assert "--field" in message
    assert [d.text for d in read_documents([write(file, {"content": "y"})], field="content")] == ["y"]


def test_a_few_empty_texts_are_counted_not_fatal(tmp_path):
    """Cases 1 and 2."""
    file = tmp_path / "a.jsonl"
    file.write_text('\n{"text": ""}\n{"text": " \\n\\t\\u3000"}\n{"text": "x"}\n\n')
    counts = ReadCounts()
    assert [d.text for d in read_documents([file], counts=counts)] == ["x"]
    assert counts.skipped == {"blank line": 2, "empty text": 2}


@pytest.mark.parametrize("raw", ["", "\n\n", '{"text": " "}\n', '{"text": ""}\n\n'])
def test_no_document_left_is_an_error(tmp_path, raw):
    """Case 2."""
    (tmp_path / "a.jsonl").write_text(raw)
    with pytest.raises(InputError, match=r"a\.jsonl: no document left"):
        list(read_documents([tmp_path / "a.jsonl"]))


@pytest.mark.parametrize(
    ("value", "kind"), [(7, "a number"), (None, "null"), ([], "a list"), ({}, "an object"), (True, "a boolean")]
)
def test_retyped_field_in_row_500(tmp_path, value, kind):
    """Case 3."""
    records = [{"text": f"t{i}"} for i in range(499)] + [{"text": value}, {"text": "end", "extra": [1, {"text": 3}]}]
    file = write(tmp_path / "a.jsonl", *records)
    with pytest.raises(InputError) as caught:
        list(read_documents([file]))
    assert str(caught.value).startswith(f"{file}:500: field 'text' is {kind}, not a string")
    counts = ReadCounts()
    assert len(list(read_documents([file], on_bad="skip", counts=counts))) == 500
    assert counts.skipped == {"'text' is not a string": 1}


@pytest.mark.parametrize("record", [7, "text", ["text"], None])
def test_a_line_that_is_no_object(tmp_path, record):
    """Case 3."""
    file = write(tmp_path / "a.jsonl", {"text": "x"}, record)
    with pytest.raises(InputError, match=r"a\.jsonl:2: .*not an object"):
        list(read_documents([file]))


def test_skip_counts_every_reason_and_says_so_when_nothing_is_left(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": 1}\n[]\n{"tex": "x"}\n{"text": "cut\n')
    with pytest.raises(InputError) as caught:
        list(read_documents([file], on_bad="skip"))
    for reason in ("'text' is not a string", "not an object", "no field 'text'", "not one JSON value"):
        assert f"1 × {reason}" in str(caught.value)


def test_lone_surrogates_are_replaced_and_counted(tmp_path):
    """Case 6: the policy is U+FFFD, in ids too; a pair is an emoji and stays."""
    file = tmp_path / "a.jsonl"
    file.write_text(r'{"id": "\udc00", "text": "a\ud83db \ud83d\ude00", "meta": "\ud83d"}' + "\n")
    counts = ReadCounts()
    assert list(read_documents([file], counts=counts)) == [Document("\ufffd", "a\ufffdb \U0001f600")]
    assert counts.repaired == {"lone surrogates replaced by U+FFFD": 2}


def test_shards_are_read_in_natural_order(tmp_path):
    """Case 11."""
    names = ["s10.jsonl", "s2.jsonl", "s1.jsonl", "s010.jsonl", "t/1.jsonl"]
    (tmp_path / "t").mkdir()
    files = [write(tmp_path / name, {"text": name}) for name in names]
    wanted = ["s1.jsonl", "s2.jsonl", "s010.jsonl", "s10.jsonl", "t/1.jsonl"]
    for order in (files, files[::-1], sorted(files)):
        assert [d.text for d in read_documents(order)] == wanted


def test_natural_order_compares_like_with_like():
    names = ["1a", "a1", "a", "10", "9", "a1b2", "a1b10", "1"]
    assert [p.name for p in natural_order(names)] == ["1", "1a", "9", "10", "a", "a1", "a1b2", "a1b10"]


def test_missing_folder_and_doubled_inputs_are_refused_at_once(tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": "x"})
    (tmp_path / "link.jsonl").symlink_to(file)
    for paths, problem in (
        ([file, tmp_path / "no.jsonl"], "no such file"),
        ([tmp_path], "is a folder"),
        ([file, tmp_path / "link.jsonl"], "given twice"),
        ([], "no input file"),
    ):
        with pytest.raises(InputError, match=problem):
            read_documents(paths)
