"""The main job with a tiny model, and the same stages on the real corpus."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import TINY

SEEDBED = [sys.executable, "-c", "from seedbed.cli import main; main()"]
TINY_JOB = [*(o for o in TINY if "max_seq_len" not in o), "train.checkpoint_every=2"]


def quickstart(folder: Path, *overrides: str) -> subprocess.CompletedProcess:
    command = [*SEEDBED, "quickstart", "--dir", str(folder), *TINY_JOB, *overrides]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_main_job_from_text_to_report(tmp_path):
    done = quickstart(tmp_path / "q", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["run"]["steps"] == 6
    assert [arm["init"] for arm in told["preflight"]["arms"]] == [
        {"law": "gpt2", "std": 0.02},
        {"law": "gamma", "gamma": 0.5, "by_role": None},
        {"law": "gamma", "gamma": 1.0, "by_role": None},
    ]
    for part in ("ln V", "Residual stream", "Masking", "train 6/6"):
        assert part in done.stderr
    page = (tmp_path / "q" / "run" / "report.html").read_text(encoding="utf-8")
    for part in ("bits / byte", "attn.gate", "sink", "norm_eps: 1.0e-12", "torch"):
        assert part in page
    assert "Verdict on gpt2" in done.stderr
    assert "gpt2 std=0.02" in (tmp_path / "q" / "preflight.html").read_text(encoding="utf-8")
    again = quickstart(tmp_path / "q")
    assert again.returncode == 0, again.stderr
    assert "is there" in again.stderr
    assert "preflight.html" in again.stdout.splitlines()[-1]


@pytest.mark.chaos
def test_killed_anywhere_the_main_job_goes_on(tmp_path):
    """kill -9 after ever longer times until it finishes: the weights are those of a run that nobody killed."""
    whole = quickstart(tmp_path / "whole", "train.steps=30")
    assert whole.returncode == 0, whole.stderr
    kills = 0
    for seconds in (2, 4, 6, 8, 11, 14, 18, 23, 30, 60, 120, 240):
        command = [*SEEDBED, "quickstart", "--dir", str(tmp_path / "q"), *TINY_JOB, "train.steps=30"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert process.returncode == 0
    assert kills >= 3
    name = "run/checkpoints/step_00000030/model.safetensors"
    assert (tmp_path / "q" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.realdata
def test_the_real_corpus_trains(real_data, tmp_path):
    """Ten domains in two languages: tokenizer train, data prepare, train."""
    files = sorted(str(path) for path in (real_data / "corpus" / "small").glob("*.jsonl"))
    assert len(files) == 10
    for arguments in (
        ["tokenizer", "train", *files, "--vocab-size", "1024", "-o", "tok"],
        ["data", "prepare", *files, "--tokenizer", "tok", "-o", "store", "--seq-len", "128"],
        ["train", str(Path(__file__).parents[2] / "recipes" / "cpu.yaml"), *TINY_JOB, "data.store=store", "run.dir=r"],
    ):
        subprocess.run([*SEEDBED, *arguments], cwd=tmp_path, check=True, capture_output=True)
    header = json.loads((tmp_path / "store" / "header.json").read_text())
    lines = sum(len(Path(file).read_bytes().splitlines()) for file in files)
    assert sum(stream["documents"] for stream in header["streams"].values()) == lines
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert any(row["kind"] == "eval" for row in rows)
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert losses[-1] < losses[0]
