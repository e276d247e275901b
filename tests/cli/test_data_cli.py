"""`seedbed tokenizer` and `seedbed data`, as a person calls them."""

import json
import os
import re
import subprocess
import sys

import pytest

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a café, 床前明月光 \U0001f600", "more words, more words"]


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + '\n{"text": ""}\n')
    return file


def test_from_text_to_inspected_store(seedbed, corpus, tmp_path):
    code, out, _ = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert code == 0
    assert (trained["vocab_size"], trained["documents"]) == (262, 4)
    assert trained["skipped"] == {"blank line": 1, "empty text": 1}
    arguments = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s", "--seq-len", 16)
    code, out, _ = seedbed(*arguments, "--heldout", 0.3, "--json")
    header = json.loads(out)["header"]
    assert (code, header["seq_len"], header["skipped"]) == (0, 16, {"blank line": 1, "empty text": 1})
    assert header["splits"]["heldout"]["documents"] >= 1
    code, out, _ = seedbed("data", "inspect", tmp_path / "s", "--bins", 1000, "--json")
    shown = json.loads(out)
    assert code == 0
    assert len(shown["bins"]) == header["splits"]["train"]["bins"]
    pieces = [piece for row in shown["bins"] for piece in row]
    assert sum(piece["starts"] for piece in pieces) == header["splits"]["train"]["documents"]
    assert sum(piece["tokens"] for piece in pieces if piece["padding"]) == header["splits"]["train"]["padding"]
    assert any(text in "".join(piece["text"] for piece in pieces) for text in TEXTS)


def test_summaries_for_people_say_where_and_what(seedbed, corpus, tmp_path):
    _, out, _ = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    assert str(tmp_path / "t") in out
    assert "1 × empty text" in out
    _, out, _ = seedbed("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    assert str(tmp_path / "s") in out
    assert "1 × empty text" in out
    _, out, _ = seedbed("data", "inspect", tmp_path / "s")
    assert "train bin 0: document" in out


def test_wrong_input_exits_2_with_one_line_and_changes_nothing(seedbed, corpus, tmp_path):
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"content": "x"}\n')
    prepare = ("data", "prepare", bad, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    before = sorted(tmp_path.rglob("*"))
    for arguments, problem in (
        (("tokenizer", "train", bad, "--vocab-size", 300, "-o", tmp_path / "u"), f"{bad}:1: no field 'text'"),
        (("tokenizer", "train", corpus, "--vocab-size", 9, "-o", tmp_path / "u"), "at least 258"),
        (("tokenizer", "train", corpus, "--vocab-size", 300, "-o", tmp_path / "t"), "exists already"),
        (prepare, f"{bad}:1: no field 'text'"),
        ((*prepare, "--seq-len", 1), "seq_len=1"),
        (("data", "prepare", corpus, "--tokenizer", tmp_path, "-o", tmp_path / "s"), "not a tokenizer folder"),
        (("data", "inspect", tmp_path / "t"), "no token store"),
    ):
        code, out, err = seedbed(*arguments)
        assert code == 2, err
        assert out == ""
        assert problem in err.splitlines()[-1], err
    assert sorted(tmp_path.rglob("*")) == before


def test_overwrite_and_damage(seedbed, corpus, tmp_path):
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    prepare = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    assert seedbed(*prepare)[0] == 0
    assert seedbed(*prepare)[0] == 2
    assert seedbed(*prepare, "--overwrite", "--seq-len", 8)[0] == 0
    shard = tmp_path / "s" / "train-00000.bin"
    raw = shard.read_bytes()
    shard.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    code, _, err = seedbed("data", "inspect", tmp_path / "s")
    assert code == 2
    assert "train-00000.bin changed" in err


def test_overwrite_spares_what_is_not_its_own(seedbed, corpus, tmp_path):
    """Folders of people, of the other kind, and those that hold an input, by whatever name."""
    seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    prepare = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "--seq-len", 16, "--overwrite", "-o")
    assert seedbed(*prepare, tmp_path / "s")[0] == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    inside = tmp_path / "s" / "b.jsonl"
    inside.write_text(corpus.read_text())
    train = ("tokenizer", "train", corpus, "--vocab-size", 262, "--overwrite", "-o")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for arguments, problem in (
        ((*prepare, tmp_path / "mine"), "is not a folder made here with a header.json"),
        ((*prepare, tmp_path / "t"), f"holds the input {tmp_path / 't'}"),
        ((*prepare, tmp_path / "link"), f"holds the input {tmp_path / 't'}"),
        ((*prepare, tmp_path), f"holds the input {corpus}"),
        ((*prepare, tmp_path / "s"), "holds b.jsonl"),
        (("data", "prepare", inside, *prepare[3:], tmp_path / "s"), f"holds the input {inside}"),
        ((*train, tmp_path / "s"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path / "mine"), "is not a folder made here with a tokenizer.json"),
        ((*train, tmp_path), f"holds the input {corpus}"),
    ):
        code, out, err = seedbed(*arguments)
        assert (code, out) == (2, "")
        assert problem in err.splitlines()[-1], err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    inside.unlink()
    assert seedbed(*prepare, tmp_path / "s")[0] == 0
    assert seedbed(*train, tmp_path / "t")[0] == 0


def test_quickstart_spares_folders_it_did_not_make(seedbed, tmp_path):
    """Refused before any work, also where only the second of its folders is somebody's."""
    for name in ("store", "tokenizer"):
        folder = tmp_path / name / name
        folder.mkdir(parents=True)
        (folder / "mine").write_text("x")
        code, _, err = seedbed("quickstart", "--dir", tmp_path / name)
        assert code == 2
        assert f"{folder}: is not a folder made here" in err
        assert [path.name for path in (tmp_path / name).rglob("*")] == [name, "mine"]


def test_no_frames_where_stderr_is_a_pipe(seedbed, corpus, tmp_path):
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    assert re.fullmatch(r"training the tokenizer: 4 documents, \d+ bytes \(\d+ s\)\n", err)
    corpus.write_text('{"text": "a"}\n7\n')
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "u")
    assert re.fullmatch(r"error: .*a\.jsonl:2: .*\n", err)


def test_a_full_disk_is_an_os_error_with_a_name(seedbed, corpus, tmp_path):
    """A limit on the size of files stands in for it; what was written so far is removed again."""
    assert seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")[0] == 0
    corpus.write_text("".join(json.dumps({"text": text * 200}) + "\n" for text in TEXTS))
    before = sorted(tmp_path.rglob("*"))
    for work, name in (
        (f"train_tokenizer(['text'], 258, {str(tmp_path / 'new')!r})", "new"),
        (f"prepare(read_documents([{str(corpus)!r}]), load_tokenizer({str(tmp_path / 't')!r}), "
         f"{str(tmp_path / 'store')!r}, 16)", "store"),
    ):  # fmt: skip
        code = (
            "import resource; from seedbed.data.sources import read_documents; from seedbed.data.store import prepare\n"
            "from seedbed.data.bpe import train_tokenizer\n"
            "from seedbed.data.tokenizer import load_tokenizer\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            f"try: {work}\nexcept OSError as error: print(error.filename)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == f"{tmp_path / name}\n", done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pipe_as_input_is_named_so(seedbed, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code, _, err = seedbed("tokenizer", "train", tmp_path / "pipe", "--vocab-size", 262, "-o", tmp_path / "t")
    assert code == 2
    assert "pipe: not a regular file" in err


def test_command_modules_import_nothing_heavy():
    code = (
        "import sys, seedbed.cli.data, seedbed.cli.tokenizer; "
        "print([m for m in ('torch', 'numpy', 'tokenizers', 'zstandard') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
