"""A file read in parts, wherever their edges fall: the same records, places and counts as read whole."""

import codecs
import gzip
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seedbed.data.formats import is_divisible, lines_of, read_records
from seedbed.data.inputs import InputFile, Part, list_inputs
from seedbed.data.reading import number_lines, parts_of
from seedbed.data.sections import Source
from seedbed.data.stages import in_process
from seedbed.errors import InputError
from seedbed.files.jsonl import OnBad, ReadCounts

LINES = st.one_of(
    st.sampled_from([b"", b" \t", b"{x", b'{"a": 1} 2', b'"\xff"', b'"cut', b'"a\0b"', codecs.BOM_UTF8 + b"1", b"\r"]),
    st.text("aé€😀\u2028", max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False).encode()),
    st.integers(20, 90).map(lambda length: json.dumps("long" * length).encode()),
)
CONTENTS = st.builds(
    lambda bom, pairs, last: bom + b"".join(line + end for line, end in pairs) + last,
    st.sampled_from([b"", codecs.BOM_UTF8]),
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n"])), max_size=8),
    LINES,
)


def jsonl(folder: Path, content: bytes) -> InputFile:
    (folder / "a.jsonl").write_bytes(content)
    (file,) = list_inputs([Source(path=f"{folder}/a.jsonl")])
    return file


def numbered(parts: list[InputFile]) -> list[InputFile]:
    """Parts with the number of their first line, all of them."""
    lines = [1]
    for part in parts:
        lines.append(lines[-1] + lines_of(part))
    return [part._replace(part=part.part._replace(line=line)) for part, line in zip(parts, lines, strict=False)]


def outcome(files: list[InputFile], on_bad: OnBad) -> list[Any]:
    """Records, what is counted and kept, and the error at which it ended."""
    found: list[Any] = []
    kept: list[Any] = []
    counts = ReadCounts(keep=kept.append)
    try:
        for file in files:
            found.extend(read_records(file, on_bad, counts))
    except InputError as error:
        found.append(str(error))
    return [found, kept, list(counts.skipped.items()), list(counts.repaired.items())]


@settings(max_examples=300, deadline=None)
@example(b"", 1, "strict")
@example(b"1", 1, "strict")
@example(b"1\n2\n", 2, "strict")  # edges between lines
@example(b"1\n" + b" " * 50 + b"2\n3", 7, "strict")  # parts inside a line
@given(CONTENTS, st.integers(1, 70), st.sampled_from(["strict", "skip"]))
def test_lines(tmp_path_factory, content, most, on_bad):
    file = jsonl(tmp_path_factory.mktemp("lines"), content)
    parts = parts_of(file, most)
    assert len(parts) == max(1, -(-len(content) // most))
    whole = outcome([file], on_bad)
    assert outcome(numbered(parts) if len(parts) > 1 else parts, on_bad) == whole
    edges = [part.part.bounds(file.size) for part in parts]
    assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])]
    assert edges[-1][1] == len(content)
    assert all(stop - start <= most for start, stop in edges)


@settings(max_examples=30, deadline=None)
@given(CONTENTS, CONTENTS, st.integers(1, 6))
def test_numbers_of_lines_are_found_and_parts_without_lines_left_out(tmp_path_factory, no_flush, one, two, count):
    folders = [tmp_path_factory.mktemp("numbers") for _ in range(3)]
    files = [jsonl(folder, content) for folder, content in zip(folders, (one, two), strict=False)]
    parts = [part for file in files for part in parts_of(file, max(1, -(-file.size // count)))]
    job: Any = SimpleNamespace(work=folders[2], engine=in_process)
    found = number_lines(job, parts)
    assert [outcome([file for file in found if file.path == one.path], "skip") for one in files] == [
        outcome([file], "skip") for file in files
    ]
    for part in found:
        assert part.part.of == 1 or lines_of(part)


def test_a_line_of_many_parts_is_read_by_one_of_them(tmp_path):
    file = jsonl(tmp_path, b'1\n"' + b"a" * 5_000_000 + b'"\n3\n')
    parts = parts_of(file, 1 << 20)
    assert [lines_of(part) for part in parts] == [2, 0, 0, 0, 1]
    assert [len(outcome([part], "strict")[0]) for part in parts] == [2, 0, 0, 0, 1]


def test_lines_are_counted_up_to_the_end_of_a_part(tmp_path):
    parts = parts_of(jsonl(tmp_path, b"1\n" * 2_000_000), 500_000)
    assert [lines_of(part) for part in parts] == [250_000] * 8


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 12))
def test_row_groups(tmp_path_factory, rows, group, count):
    path = tmp_path_factory.mktemp("groups") / "a.parquet"
    pq.write_table(pa.table({"text": [str(i) for i in range(rows)]}), path, row_group_size=group)
    (file,) = list_inputs([Source(path=str(path))])
    parts = parts_of(file, -(-file.size // count))
    assert len(parts) == count
    assert outcome(parts, "strict") == outcome([file], "strict")
    assert rows < count * group or all(outcome([part], "strict")[0] for part in parts)


def test_rows_that_are_not_utf8_keep_their_numbers_in_parts(tmp_path):
    texts = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"ab\xff")]
    )
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1)
    (file,) = list_inputs([Source(path=f"{tmp_path}/a.parquet")])
    last = file._replace(part=Part(2, 3))
    (error,) = outcome([last], "strict")[0]
    assert error.startswith(f"{tmp_path}/a.parquet:3: a text that is not UTF-8; write the table anew")


def test_rows_of_a_dataset(tmp_path):
    from datasets import Dataset

    Dataset.from_list([{"text": str(i)} for i in range(1000)]).save_to_disk(str(tmp_path / "d"), num_shards=3)
    (file,) = list_inputs([Source(path=f"{tmp_path}/d")])
    whole = outcome([file], "strict")
    assert whole[0][-1] == (f"{tmp_path}/d:1000", {"text": "999"})
    for count in (2, 3, 7):
        parts = parts_of(file, -(-file.size // count))
        assert len(parts) == count
        assert outcome(parts, "strict") == whole
        assert max(len(outcome([part], "strict")[0]) for part in parts) <= 1000 // count + 1
    many = [file._replace(part=Part(number, 1200)) for number in range(1200)]  # some have no row
    assert [pair for part in many[:12] for pair in outcome([part], "strict")[0]] == whole[0][:10]


def test_what_cannot_be_entered_in_the_middle_stays_whole(tmp_path, monkeypatch):
    from datasets import Dataset

    content = b"1\n2\n3\n4\n"
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pipe("/a.jsonl", content)
    Dataset.from_list([{"text": "a"}, {"text": "b"}]).save_to_disk(str(tmp_path / "d"))
    fs.put(f"{tmp_path}/d", "/held", recursive=True)
    for name, raw in {
        "b.jsonl": content,
        "c.jsonl.gz": gzip.compress(content),
        "d.JSONL.ZST": zstandard.compress(content),
        "e.txt": content,
    }.items():
        (tmp_path / name).write_bytes(raw)
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("a.jsonl", content)

    def parts(path: str) -> int:
        (file,) = list_inputs([Source(path=path)])
        found = parts_of(file, 3)
        assert (len(found) > 1) == is_divisible(file)
        assert outcome(numbered(found) if len(found) > 1 else found, "strict") == outcome([file], "strict")
        unknown = file._replace(size=0)
        assert parts_of(unknown, 3) == [unknown]
        assert outcome([unknown], "strict") == outcome([file], "strict")
        return len(found)

    assert parts("memory://a.jsonl") == parts(f"{tmp_path}/b.jsonl") == 3
    whole = [f"{tmp_path}/{name}" for name in ("c.jsonl.gz", "d.JSONL.ZST", "e.txt")]
    assert [parts(path) for path in [*whole, f"zip://a.jsonl::{tmp_path}/f.zip", "memory://held"]] == [1] * 5
    monkeypatch.setattr(MemoryFile, "seekable", lambda _: False)
    assert parts("memory://a.jsonl") == 1


def test_a_part_of_a_file_that_is_gone(tmp_path):
    first, *_ = parts_of(jsonl(tmp_path, b"1\n2\n"), 2)
    Path(first.path).unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read: No such file"):
        lines_of(first)
