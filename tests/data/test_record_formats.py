"""The same documents from every format."""

import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import ANSWERED, REPLY, USER, read

from seedbed.data.document import text_document
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts

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


def test_a_text_folder_holds_the_same_texts(tmp_path, read_records):
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


def test_a_misspelt_column_names_all_columns(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"content": "x", "url": "u"}]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet:1: no field 'text'; the keys there are: content, url"):
        read(tmp_path / "a.parquet")
