"""Streams that are closed, full or without a reader, and Ctrl-C while the commands are imported."""

import json
import os
import re
import subprocess
import sys

import pytest

SEEDBED = [sys.executable, "-c", "from seedbed.cli import main; main()"]


@pytest.fixture
def train(tmp_path):
    """A command that prints JSON on stdout and what it does on stderr, under redirections of a shell."""
    (tmp_path / "a.jsonl").write_text('{"text": "the cat sat on the mat"}\n')
    arguments = ["tokenizer", "train", "a.jsonl", "--vocab-size", "258", "-o", "t", "--json"]

    def call(redirections: str = "", stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
        command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *SEEDBED, *arguments]
        return subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, check=False)

    return call


@pytest.mark.parametrize("redirections", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_stderr_that_takes_nothing_fails_no_work(train, tmp_path, redirections):
    done = train(redirections)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["documents"] == 1
    assert (tmp_path / "t" / "tokenizer.json").is_file()


def test_stderr_whose_reader_has_gone_fails_no_work(train, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = train(stderr=writer)
    os.close(writer)
    assert done.returncode == 0
    assert json.loads(done.stdout)["documents"] == 1
    assert (tmp_path / "t" / "tokenizer.json").is_file()


@pytest.mark.parametrize("redirections", [">&-", "<&- >&- 2>&-"])
def test_stdout_that_was_closed_is_not_asked_for(train, tmp_path, redirections):
    done = train(redirections)
    assert (done.returncode, done.stdout) == (0, b"")
    assert (b"1 documents" in done.stderr) == ("2>&-" not in redirections)
    assert (tmp_path / "t" / "tokenizer.json").is_file()


def test_a_closed_stream_keeps_its_number(tmp_path):
    """Else the next file to be opened gets it, and with it what libraries write on stderr."""
    code = (
        "import os; from seedbed.cli.streams import open_streams; open_streams()\n"
        f"number = os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "assert number > 2, number\n"
        "assert not os.system('echo from a library && echo of C >&2')"
    )
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "file").read_bytes() == b""


def test_ctrl_c_while_the_commands_are_imported_is_silent(tmp_path):
    """A library that they all import stands still here, and is interrupted."""
    (tmp_path / "typer.py").write_text(
        "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60); raise AssertionError"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*SEEDBED, "--version"], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_no_frames_where_stderr_is_a_pipe(seedbed, corpus, tmp_path):
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "t")
    assert re.fullmatch(r"training the tokenizer: 4 documents, \d+ bytes \(\d+ s\)\n", err)
    corpus.write_text('{"text": "a"}\n7\n')
    _, _, err = seedbed("tokenizer", "train", corpus, "--vocab-size", 262, "-o", tmp_path / "u")
    assert re.fullmatch(r"error: .*a\.jsonl:2: .*\n", err)
