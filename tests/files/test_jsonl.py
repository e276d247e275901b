import codecs
import gzip
import io
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts, _split_lines, read_chunks, read_jsonl

PLAIN = b'{"text": "one"}\n{"text": "two"}\n'
WANTED = [(1, {"text": "one"}), (2, {"text": "two"})]


def write(path, raw):
    path.write_bytes(raw)
    return path


def test_plain_gzip_and_zstandard_read_alike(tmp_path):
    frames = [zstandard.compress(PLAIN[:7]), zstandard.compress(PLAIN[7:])]  # a file of two frames, cut inside a line
    assert list(read_jsonl(write(tmp_path / "a.jsonl", PLAIN))) == WANTED
    assert list(read_jsonl(write(tmp_path / "a.jsonl.gz", gzip.compress(PLAIN)))) == WANTED
    assert list(read_jsonl(write(tmp_path / "a.jsonl.zst", b"".join(frames)))) == WANTED
    assert list(read_jsonl(write(tmp_path / "B.JSONL.GZ", gzip.compress(PLAIN)))) == WANTED
    assert list(read_jsonl(write(tmp_path / "B.JSONL.ZST", b"".join(frames)))) == WANTED


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_an_open_stream_reads_as_the_file_does_and_is_named(name):
    class Trickle(io.BytesIO):
        """Gives few bytes at a time, as a network does."""

        def read(self, size=-1):
            return super().read(min(size, 3) if size > 0 else 3)

    raw = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rsplit(".", 1)[1], bytes)(PLAIN + b"{")
    lines = read_jsonl(f"s3://bucket/{name}", stream=Trickle(raw))
    assert [next(lines), next(lines)] == WANTED
    with pytest.raises(InputError, match=f"s3://bucket/{name}:3: "):
        next(lines)


def test_a_stream_that_fails_is_named():
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(InputError, match=r"s3://b/a\.jsonl: cannot be read: Connection reset"):
        next(read_jsonl("s3://b/a.jsonl", stream=Broken()))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_chunks_are_the_content(tmp_path, name):
    raw = bytes(range(256)) * 10_000
    pack = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rsplit(".", 1)[1], bytes)
    chunks = read_chunks(write(tmp_path / name, pack(raw)))
    assert b"".join(chunks) == raw


@pytest.mark.parametrize(
    ("raw", "repaired"),
    [
        (codecs.BOM_UTF8 + PLAIN, {"byte-order marks removed": 1}),
        (PLAIN.replace(b"\n", b"\r\n"), {"CRLF line ends replaced by LF": 2}),
        (PLAIN.replace(b"one", b"o\0ne") + b"\0\0", {"NUL bytes removed": 3}),
        (PLAIN.rstrip(b"\n"), {}),
    ],
)
def test_bom_crlf_and_nul_give_the_same_values(tmp_path, raw, repaired):
    """Case 4."""
    counts = ReadCounts()
    assert list(read_jsonl(write(tmp_path / "a.jsonl", raw), counts=counts)) == WANTED
    assert counts.repaired == repaired


def test_blank_lines_are_counted_and_keep_the_numbers(tmp_path):
    counts = ReadCounts()
    raw = b'\n  \r\n{"a": 1}\n\n2\n'
    assert list(read_jsonl(write(tmp_path / "a.jsonl", raw), counts=counts)) == [(3, {"a": 1}), (5, 2)]
    assert counts.skipped == {"blank line": 3}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "a"} {"text": "b"}', "a second value starts at column 15"),
        (b'{"text": "cut sho', "cut short"),
        (b'{"text": "a"', "cut short"),
        (b'{"text": "cut sho\r\n', "cut short"),
        (b'{"text": ', "cut short"),
        (b"{text: 1}", "not JSON"),
        (b'{"text": "\xff"}', "not UTF-8 at byte 11"),
        (b"[" * 100_000, "nested thousands deep cannot be read; flatten them \\(or"),
        (
            b"9" * 6000,
            "an integer of thousands of digits cannot be read; write it as text \\(or leave",
        ),
    ],
)
def test_bad_line_names_file_and_line(tmp_path, line, problem):
    """Case 5."""
    file = write(tmp_path / "a.jsonl", PLAIN + line)
    with pytest.raises(InputError, match=problem) as caught:
        list(read_jsonl(file))
    assert str(caught.value).startswith(f"{file}:3: ")
    assert "\n" not in str(caught.value)
    counts = ReadCounts()
    assert list(read_jsonl(file, "skip", counts)) == WANTED
    assert counts.skipped == {"not one JSON value": 1}


@pytest.mark.parametrize("policy", ["strict", "skip"])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_compressed_file_cut_anywhere_is_an_error(tmp_path, name, policy):
    raw = gzip.compress(PLAIN) if name.endswith("gz") else zstandard.compress(PLAIN)
    for length in range(1, len(raw)):
        file = write(tmp_path / name, raw[:length])
        with pytest.raises(InputError, match=r"ends early|damaged"):
            list(read_jsonl(file, policy))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_wrong_name_is_an_error(tmp_path, name):
    with pytest.raises(InputError, match="damaged, or not compressed"):
        list(read_jsonl(write(tmp_path / name, PLAIN)))


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        list(read_jsonl(tmp_path / "no.jsonl"))


@given(st.lists(st.text(alphabet="ab\n\r\u2028", max_size=30), max_size=8), st.integers(1, 7))
def test_lines_do_not_depend_on_chunks(texts, size):
    raw = "".join(texts).encode()
    chunks = [raw[i : i + size] for i in range(0, len(raw), size)]
    wanted = raw.split(b"\n")
    assert list(_split_lines(chunks)) == (wanted if wanted[-1] else wanted[:-1])


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), max_size=5))
def test_round_trip(tmp_path_factory, values):
    file = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    assert [value for _, value in read_jsonl(file)] == values
