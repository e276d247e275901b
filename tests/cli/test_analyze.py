"""`seedbed analyze cohort`: one document or one table, and nothing overwritten by accident."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import config, quiet

from seedbed.api import fit
from seedbed.laws.cohort import read_cohort


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2"), quiet)
    return folder


def seedbed(*arguments: str | Path) -> subprocess.CompletedProcess:
    command = [str(Path(sys.executable).parent / "seedbed"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_cohort_of_a_run(run, tmp_path):
    out = tmp_path / "new" / "cohort.json"
    done = seedbed("analyze", "cohort", run, "-o", out, "--note", "two steps")
    assert done.returncode == 0, done.stderr
    assert f"{out}: a cohort of 1 checkpoints; use it with init.law=magnitude init.cohort={out}" in done.stdout
    assert "RMS at z = ½" in done.stdout
    assert "(1 of 1)" in done.stderr
    cohort = read_cohort(str(out))
    assert cohort.note == "two steps"
    first = cohort.components["attn.qkv"].rms.mean[0]
    assert f"{first:.4f}" in next(line for line in done.stdout.splitlines() if line.startswith("attn.qkv"))

    again = seedbed("analyze", "cohort", run, "-o", out)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    assert read_cohort(str(out)).note == "two steps"

    told = seedbed("analyze", "cohort", run, "-o", out, "--overwrite", "--json")
    document = json.loads(told.stdout)
    assert document["cohort"] == str(out)
    assert document["members"][0]["name"] == "run"
    assert document["components"]["attn.qkv"]["rms"]["mean"][0] == first


def test_wrong_input_writes_nothing(run, tmp_path):
    out = tmp_path / "cohort.json"
    done = seedbed("analyze", "cohort", run, tmp_path / "none", "-o", out)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}: no such folder")
    assert not out.exists()
