"""`seedbed tokenizer` and `seedbed data`, as a person calls them."""

import json
import subprocess
import sys

import pytest

from seedbed import cli

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a café, 床前明月光 \U0001f600", "more words, more words"]


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seedbed", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return call


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + '\n{"text": ""}\n')
    return file


def test_from_text_to_inspected_store(run, corpus, tmp_path):
    code, out, _ = run("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert code == 0
    assert (trained["vocab_size"], trained["documents"]) == (262, 4)
    assert trained["skipped"] == {"blank line": 1, "empty text": 1}
    arguments = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s", "--seq-len", 16)
    code, out, _ = run(*arguments, "--heldout", 0.3, "--json")
    header = json.loads(out)["header"]
    assert (code, header["seq_len"], header["skipped"]) == (0, 16, {"blank line": 1, "empty text": 1})
    assert header["splits"]["heldout"]["documents"] >= 1
    code, out, _ = run("data", "inspect", tmp_path / "s", "--bins", 1000, "--json")
    shown = json.loads(out)
    assert code == 0
    assert len(shown["bins"]) == header["splits"]["train"]["bins"]
    pieces = [piece for row in shown["bins"] for piece in row]
    assert sum(piece["starts"] for piece in pieces) == header["splits"]["train"]["documents"]
    assert sum(piece["tokens"] for piece in pieces if piece["padding"]) == header["splits"]["train"]["padding"]
    assert any(text in "".join(piece["text"] for piece in pieces) for text in TEXTS)


def test_summaries_for_people_say_where_and_what(run, corpus, tmp_path):
    _, out, _ = run("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    assert str(tmp_path / "t") in out
    assert "1 × empty text" in out
    _, out, _ = run("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    assert str(tmp_path / "s") in out
    assert "1 × empty text" in out
    _, out, _ = run("data", "inspect", tmp_path / "s")
    assert "train bin 0: document" in out


def test_true_vocabulary_is_warned_about_on_stderr(run, corpus, tmp_path):
    """Case 14."""
    code, out, err = run("tokenizer", "train", corpus, "--vocab-size", 9000, "-o", tmp_path / "t", "--json")
    trained = json.loads(out)
    assert (code, trained["requested_vocab_size"]) == (0, 9000)
    assert trained["vocab_size"] < 9000
    assert f"warning: the vocabulary has {trained['vocab_size']} tokens" in err


def test_wrong_input_exits_2_with_one_line_and_changes_nothing(run, corpus, tmp_path):
    run("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"content": "x"}\n')
    prepare = ("data", "prepare", bad, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    before = sorted(tmp_path.rglob("*"))
    for arguments, problem in (
        (("tokenizer", "train", bad, "--vocab-size", 300, "-o", tmp_path / "u"), f"{bad}:1: no field 'text'"),
        (("tokenizer", "train", corpus, "--vocab-size", 9, "-o", tmp_path / "u"), "at least 258"),
        (("tokenizer", "train", corpus, "--vocab-size", 300, "-o", tmp_path / "t"), "exists already"),
        (prepare, f"{bad}:1: no field 'text'"),
        ((*prepare, "--seq-len", 0), "seq_len=0"),
        (("data", "prepare", corpus, "--tokenizer", tmp_path, "-o", tmp_path / "s"), "not a tokenizer folder"),
        (("data", "inspect", tmp_path / "t"), "no token store"),
    ):
        code, out, err = run(*arguments)
        assert code == 2, err
        assert out == ""
        assert problem in err.replace("\r", "\n").splitlines()[-1], err
    assert sorted(tmp_path.rglob("*")) == before


def test_overwrite_and_damage(run, corpus, tmp_path):
    run("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    prepare = ("data", "prepare", corpus, "--tokenizer", tmp_path / "t", "-o", tmp_path / "s")
    assert run(*prepare)[0] == 0
    assert run(*prepare)[0] == 2
    assert run(*prepare, "--overwrite", "--seq-len", 8)[0] == 0
    shard = tmp_path / "s" / "train-00000.bin"
    raw = shard.read_bytes()
    shard.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    code, _, err = run("data", "inspect", tmp_path / "s")
    assert code == 2
    assert "train-00000.bin changed" in err


def test_command_modules_import_nothing_heavy():
    code = (
        "import sys, seedbed.cli.data, seedbed.cli.tokenizer; "
        "print([m for m in ('torch', 'numpy', 'tokenizers', 'zstandard') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
