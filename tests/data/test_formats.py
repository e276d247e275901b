import codecs
import gzip
import json
import zipfile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from seedbed.data.formats import read_records
from seedbed.data.inputs import list_inputs
from seedbed.data.sections import Source
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts

ROWS = [{"text": "one", "n": 1, "m": {"a": [1.5]}}, {"text": "\u00e9\n\x00", "n": None, "m": None}]


def read(source, on_bad="strict", counts=None, **columns):
    source = source if isinstance(source, Source) else Source(path=str(source))
    counts = ReadCounts() if counts is None else counts
    return [pair for file in list_inputs([source]) for pair in read_records(file, on_bad, counts, **columns)]


def parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def dataset(path, rows):
    from datasets import Dataset

    Dataset.from_list(rows).save_to_disk(str(path))
    return path


def test_rows_of_tables_are_counted_from_one_over_groups(tmp_path):
    rows = [{"text": str(i)} for i in range(1000)]
    for path in (parquet(tmp_path / "a.parquet", rows, row_group_size=300), dataset(tmp_path / "d", rows)):
        assert read(path) == [(f"{path}:{i}", row) for i, row in enumerate(rows, start=1)]


def test_nested_columns_become_python_values(tmp_path):
    for path in (parquet(tmp_path / "a.parquet", ROWS), dataset(tmp_path / "d", ROWS)):
        assert [record for _, record in read(path)] == ROWS


def test_only_wanted_columns_are_read_unless_a_needed_one_is_missing(tmp_path):
    for path in (parquet(tmp_path / "a.parquet", ROWS), dataset(tmp_path / "d", ROWS)):
        chosen = [record for _, record in read(path, needed={"text"}, others={"m", "id"})]
        assert chosen == [{"text": row["text"], "m": row["m"]} for row in ROWS]
        assert [record for _, record in read(path, needed={"txt"}, others={"m"})] == ROWS


def test_remote_files_of_every_format(tmp_path):
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    table = parquet(tmp_path / "a.parquet", ROWS).read_bytes()
    fs.pipe({"/a.jsonl": lines, "/a.jsonl.gz": gzip.compress(lines), "/a.jsonl.zst": zstandard.compress(lines)})
    fs.pipe("/a.parquet", table)
    fs.put(str(dataset(tmp_path / "d", ROWS)), "/d", recursive=True)
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet", "d"):
        assert read(f"memory://{name}") == [(f"memory://{name}:{i}", row) for i, row in enumerate(ROWS, start=1)]
    fs.pipe("/t/sub/a.txt", b"text")
    assert read("memory://t") == [("memory://t/sub/a.txt", {"id": "sub/a.txt", "text": "text"})]


def test_options_go_to_the_file_system(tmp_path):
    folder = dataset(tmp_path / "d", ROWS)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("a.jsonl", '{"text": "x"}')
        for file in folder.iterdir():
            archive.write(file, f"d/{file.name}")
    options = {"fo": f"{tmp_path}/c.zip"}
    assert read(Source(path="zip://a.jsonl", options=options)) == [("zip://a.jsonl:1", {"text": "x"})]
    assert [record for _, record in read(Source(path="zip://d", options=options))] == ROWS
    with pytest.raises(InputError, match=r"zip://a\.jsonl: cannot be opened"):
        read("zip://a.jsonl")


@pytest.mark.parametrize("name", ["a.txt", "a.md.gz", "a.txt.zst"])
def test_a_text_file_is_a_record(tmp_path, name):
    raw = "é\n\tb\n".encode()
    pack = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rsplit(".", 1)[1], bytes)
    (tmp_path / name).write_bytes(pack(raw))
    assert read(tmp_path) == [(f"{tmp_path}/{name}", {"id": name, "text": "é\n\tb\n"})]


def test_bom_crlf_and_nul_of_a_text_file(tmp_path):
    """Case 4."""
    counts = ReadCounts()
    (tmp_path / "a.txt").write_bytes(codecs.BOM_UTF8 + b"a\r\nb\0\r\n\rc\n")
    ((_, record),) = read(tmp_path, counts=counts)
    assert record["text"] == "a\nb\n\rc\n"
    assert counts.repaired == {
        "byte-order marks removed": 1,
        "NUL bytes removed": 1,
        "CRLF line ends replaced by LF": 2,
    }


def test_a_text_file_that_is_not_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ab\xff")
    (tmp_path / "b.txt").write_bytes(b"b")
    with pytest.raises(InputError, match=r"a\.txt: not UTF-8 at byte 3"):
        read(tmp_path)
    kept = []
    counts = ReadCounts(keep=kept.append)
    assert [record["id"] for _, record in read(tmp_path, "skip", counts)] == ["b.txt"]
    assert counts.skipped == {"not UTF-8": 1}
    assert kept == [{"where": f"{tmp_path}/a.txt", "reason": "not UTF-8", "record": "ab\ufffd"}]


def test_a_row_that_is_not_utf8(tmp_path):
    texts = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc")]
    )
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet:2: a text that is not UTF-8"):
        read(tmp_path)
    counts = ReadCounts()
    path = f"{tmp_path}/a.parquet"
    assert read(path, "skip", counts) == [(f"{path}:1", {"text": "a"}), (f"{path}:3", {"text": "c"})]
    assert counts.skipped == {"not UTF-8": 1}


@pytest.mark.parametrize("policy", ["strict", "skip"])
def test_a_damaged_table_names_its_file(tmp_path, policy):
    raw = parquet(tmp_path / "a.parquet", [{"text": f"text {i}"} for i in range(1000)]).read_bytes()
    half = len(raw) // 2
    for damaged in (raw[:half], raw[:-1], b"", b"PAR1", raw[:100] + bytes(300) + raw[400:]):
        (tmp_path / "a.parquet").write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.parquet: damaged, or no Parquet file: ") as caught:
            read(tmp_path / "a.parquet", policy)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [0, 7, 1000])
def test_a_damaged_dataset_names_its_folder(tmp_path, cut):
    path = dataset(tmp_path / "d", [{"text": f"text {i}"} for i in range(1000)])
    (data,) = path.glob("*.arrow")
    data.write_bytes(data.read_bytes()[:cut])
    with pytest.raises(InputError, match="d: damaged, or no saved dataset: "):
        read(path)
    data.unlink()
    with pytest.raises(InputError, match="d: damaged, or no saved dataset: "):
        read(path)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.txt.gz", "a.txt.zst"])
def test_a_damaged_compressed_file_names_it(tmp_path, name):
    raw = b'{"text": "a"}\n' * 1000
    raw = gzip.compress(raw) if name.endswith("gz") else zstandard.compress(raw)
    for damaged in (raw[:-1], b"no" + raw):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=rf"{name}: (damaged|the compressed file ends early)"):
            read(tmp_path / name, "skip")


def test_a_file_that_is_gone_when_it_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}")
    (file,) = list_inputs([Source(path=f"{tmp_path}/a.jsonl")])
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read: No such file"):
        list(read_records(file, "strict", ReadCounts()))
