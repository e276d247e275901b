"""Which files make a unit together; stores of a large file, whose parts are units."""

import codecs
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared import FILES, content, make, redone, spec_of, units, without_keys

from seedbed.data.inputs import InputFile, Part
from seedbed.data.reading import file_runs
from seedbed.data.sections import Source
from seedbed.data.spec import Spec
from seedbed.data.steps import clean_files

SOURCES = [Source(path="a"), Source(path="b")]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=30), st.integers(1, 30), st.integers(1, 3))
def test_files_share_a_unit_until_they_have_enough(drawn, enough, parts):
    files = [
        InputFile(f"{i}", SOURCES[source], "jsonl", size * parts, "", Part(number, parts))
        for i, (source, size) in enumerate(sorted(drawn, key=lambda pair: pair[0]))
        for number in range(parts)
    ]
    runs = file_runs(files, enough)
    assert [file for run in runs for file in run] == files
    for i, run in enumerate(runs):
        size = sum(file.size // parts for file in run)
        assert len({file.source.path for file in run}) == 1
        assert len(run) == 1 or size - run[-1].size // parts < enough  # without the last there was not enough
        if i + 1 < len(runs) and runs[i + 1][0].source == run[0].source:
            assert size >= enough


@pytest.fixture
def one_file(mixed_corpus, tokenizer, tmp_path, monkeypatch, no_flush) -> dict[str, Any]:
    """A specification of a corpus as one file, with a byte-order mark, CRLF and bad lines; each part makes a unit."""
    monkeypatch.setattr("seedbed.data.reading.PIECE_BYTES", 1)
    files = [(mixed_corpus / f"part-{number}.jsonl").read_bytes().replace(b"\n", b"\r\n") for number in FILES]
    (tmp_path / "one.jsonl").write_bytes(codecs.BOM_UTF8 + b"{x\r\n".join(files))
    return spec_of(mixed_corpus, tokenizer.folder, sources=[f"{tmp_path}/one.jsonl"], on_bad="skip")


@pytest.mark.parametrize("form", ["bin", "jsonl"])
def test_the_parts_of_a_large_file_change_nothing_but_the_keys_of_units(form, one_file, tmp_path, monkeypatch):
    if form == "jsonl":
        one_file |= {"storage": {"format": "jsonl"}, "packing": {"strategy": "simple", "seq_len": 32}}
    stores, counts = {}, {}
    for most in (10**6, 3000, 200):  # lines have about 300 bytes: in some parts of 200 none begins
        monkeypatch.setattr("seedbed.data.reading.PART_BYTES", most)
        make(one_file, tmp_path / f"{most}", keep_work=True)
        stores[most] = without_keys(tmp_path / f"{most}")
        done = units(tmp_path / f"{most}")
        counts[most] = [sum(name.startswith(f"work/{stage}/") for name in done) for stage in ("lines", "clean")]
    size = os.stat(tmp_path / "one.jsonl").st_size
    assert counts[10**6] == [0, 1]
    assert counts[3000] == [-(-size // 3000)] * 2
    assert counts[200][0] == -(-size // 200)
    assert 20 < counts[200][1] < counts[200][0] - 5
    assert stores[200] == stores[3000] == stores[10**6]
    places = [json.loads(line)["where"] for line in (tmp_path / "200" / "rejects.jsonl").open()]
    wanted = [6, 7, 17, 23, 24, 34, 40, 41]
    assert places == [f"{tmp_path}/one.jsonl:{line}" for line in wanted]


def test_only_the_parts_of_a_large_file_that_are_not_finished_are_done(one_file, tmp_path, monkeypatch):
    monkeypatch.setattr("seedbed.data.reading.PART_BYTES", 3000)
    store, whole = tmp_path / "store", tmp_path / "whole"
    make(one_file, whole, keep_work=True)
    with monkeypatch.context() as stopped:
        stopped.setattr("seedbed.data.reading.clean_files", stops_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            make(one_file, store, keep_work=True)
    before = units(store)
    assert sorted(name for name in before if "clean" in name) == ["work/clean/00000", "work/clean/00001"]
    make(one_file, store, keep_work=True)
    assert not redone(before, units(store)) & before.keys()
    assert content(store) == content(whole)
    before, bad = units(store), {"work/lines/00001", "work/clean/00002", "train/00000"}
    for file in ("work/lines/00001/unit.json", "work/clean/00002/table-00000.npy", "train/00000/tokens.bin"):
        os.truncate(store / file, os.stat(store / file).st_size - 3)
    make(one_file, store, keep_work=True)
    assert redone(before, units(store)) == bad
    assert content(store) == content(whole)


def test_other_parts_than_those_that_are_finished_are_read_anew(one_file, tmp_path, monkeypatch):
    for store, sizes in (("again", [3000, 2000]), ("once", [2000])):
        for most in sizes:
            monkeypatch.setattr("seedbed.data.reading.PART_BYTES", most)
            make(one_file, tmp_path / store, keep_work=True)
            (tmp_path / store / "header.json").unlink()
    assert content(tmp_path / "again") == content(tmp_path / "once")


def stops_at_the_third(folder: Path, files: list[InputFile], spec: Spec) -> dict[str, Any]:
    if files[0].part.number == 2:
        raise KeyboardInterrupt
    return clean_files(folder, files, spec)
