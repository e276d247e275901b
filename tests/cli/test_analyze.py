"""`seedbed analyze cohort`: one document or one table, and nothing overwritten by accident."""

import json
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


def test_a_cohort_of_a_run(seedbed, run, tmp_path):
    path = tmp_path / "new" / "cohort.json"
    code, out, err = seedbed("analyze", "cohort", run, "-o", path, "--note", "two steps")
    assert code == 0, err
    assert f"{path}: a cohort of 1 checkpoint; use it with init.law=magnitude init.cohort={path}" in out
    assert "RMS at z = ½" in out
    assert "(1 of 1)" in err
    cohort = read_cohort(str(path))
    assert cohort.note == "two steps"
    first = cohort.components["attn.qkv"].rms.mean[0]
    assert f"{first:.4f}" in next(line for line in out.splitlines() if line.startswith("attn.qkv"))

    code, _, err = seedbed("analyze", "cohort", run, "-o", path)
    assert code == 2
    assert "--overwrite" in err
    assert read_cohort(str(path)).note == "two steps"

    _, out, _ = seedbed("analyze", "cohort", run, "-o", path, "--overwrite", "--json")
    document = json.loads(out)
    assert document["cohort"] == str(path)
    assert document["members"][0]["name"] == "run"
    assert document["components"]["attn.qkv"]["rms"]["mean"][0] == first
    assert read_cohort(str(path)).note == ""


def test_wrong_input_writes_nothing(seedbed, run, tmp_path):
    path = tmp_path / "cohort.json"
    code, out, err = seedbed("analyze", "cohort", run, tmp_path / "none", "-o", path)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}: no such folder")
    assert not path.exists()
