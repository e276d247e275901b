"""A full disk, Ctrl-C and SIGTERM: one line, and what was finished stays."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from few_texts import TEXTS, files_in


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk(seedbed, corpus, prepare, disk, tmp_path, workers):
    """One line names the place and what to do; what was finished stays, and the same command finishes with room."""
    place, run = disk
    files = [tmp_path / f"{i}.jsonl" for i in range(6)]
    for file in files:
        file.write_text(
            "".join(json.dumps({"text": f"{file.name} {i} {text}" * 40}) + "\n" for i in range(9) for text in TEXTS)
        )
    arguments = ("data", "prepare", *files, *prepare[3:5], "--set", "storage.shard_tokens=20000", "--workers", workers)
    assert seedbed(*arguments, "-o", tmp_path / "whole")[0] == 0
    command = " ".join(
        [sys.executable, "-c", "'from seedbed.cli import main; main()'", *map(str, arguments), "-o", f"{place}/s"]
    )
    clean, after = place / "s" / "work" / "clean", f"mount -o remount,size=50m {place} && {command} > /dev/null"
    told = run("700k", f"! {command} && ls -a {clean} > {tmp_path}/left && {after} && cp -r {place}/s {tmp_path}/s")
    lines = told.stderr.splitlines()
    (problem,) = [line for line in lines if line.startswith("error: ")]
    assert re.fullmatch(
        rf"error: {place}/s/.*: No space left on device; make room, and run the same command again", problem
    )
    left = (tmp_path / "left").read_text()
    assert ".partial-" not in left
    assert "00000" in left
    made = {name: content for name, content in files_in(tmp_path / "s").items() if name.name != ".lock"}
    whole = {name: content for name, content in files_in(tmp_path / "whole").items() if name.name != ".lock"}
    assert {p.relative_to(tmp_path / "s"): c for p, c in made.items()} == {
        p.relative_to(tmp_path / "whole"): c for p, c in whole.items()
    }


def test_a_tokenizer_on_a_full_disk(tmp_path):
    """A limit on the size of files stands in for it; what was written so far is removed again."""
    code = (
        "import resource; from seedbed.data.bpe import train_tokenizer\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"try: train_tokenizer(['text'], 258, {str(tmp_path / 'new')!r})\n"
        "except OSError as error: print(error.filename)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path / 'new'}\n", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)])
def test_a_signal_keeps_what_was_finished_and_says_what_to_do(
    seedbed, corpus, prepare, tmp_path, number, code, workers
):
    corpus.write_text("".join(json.dumps({"text": f"{i} {text}" * 20}) + "\n" for i in range(20000) for text in TEXTS))
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", *map(str, prepare[:-1]), str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((tmp_path / "s").glob("work/clean/.partial-*")):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert err.splitlines()[-1].startswith("interrupted")
    assert "what was finished is kept, and the same command goes on from there" in err.splitlines()[-1]
    assert (tmp_path / "s" / "request.json").is_file()
    code, _, err = seedbed("data", "inspect", tmp_path / "s")
    assert code == 2
    assert "a store that was not finished; run the same `seedbed data prepare` again" in err
    corpus.write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    assert seedbed(*prepare, "--heldout", 0)[0] == 0


def test_an_interrupt_that_a_library_makes_an_error_of_is_still_one():
    """torch raises ValueError where a signal comes while safetensors lets it make a tensor."""
    script = """
import os, signal
from seedbed.cli import config, main

def show(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ValueError("could not determine the shape of an object") from None

import seedbed.config
seedbed.config.Config.load = classmethod(lambda *_: show())
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, "config", "show"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr.splitlines()) == (
        130,
        ["interrupted; what was finished is kept, and the same command goes on from there"],
    )
