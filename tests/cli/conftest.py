"""The command line in this process, and a store of a few texts."""

import json
import sys

import pytest
from few_texts import TEXTS

from seedbed import cli
from seedbed.cli import app


@pytest.fixture
def seedbed(monkeypatch, capsys):
    """Call a command: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        # a library's thread, such as tqdm's, must not end all tests at once
        monkeypatch.setattr(app, "_leave", sys.exit)
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


@pytest.fixture
def tokenizer(seedbed, corpus, tmp_path):
    assert seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")[0] == 0
    return tmp_path / "t"


@pytest.fixture
def prepare(corpus, tokenizer, tmp_path):
    return ("data", "prepare", corpus, "--tokenizer", tokenizer, "-o", tmp_path / "s", "--workers", 1)
