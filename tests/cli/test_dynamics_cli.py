"""`seedbed analyze dynamics`: tables, one document, a folder; and wrong input that changes nothing."""

import json
from pathlib import Path

import pytest
from tiny import config, quiet

from seedbed.api import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2", "model.d_model=16", "train.checkpoint_every=1"), quiet)
    return folder


def test_a_run(seedbed, run, undrawn, tmp_path):
    out = tmp_path / "out"
    code, told, err = seedbed("analyze", "dynamics", run, "-o", out, "--over", "tokens")
    assert code == 0, err
    assert "Stable rank: first → least @step" in told
    assert "rows.csv, turns.csv" in told
    assert "checkpoints measured: 2" in told
    assert not (out / "parts.jsonl").exists()
    names = {path.name for path in out.iterdir()}
    assert names == {
        "report.html", "result.json", "rows.csv", "turns.csv", "runs.csv", "references.csv", "figures",
    }  # fmt: skip
    assert (out / "figures" / "row_cosine.svg").is_file()
    assert len((out / "rows.csv").read_text().splitlines()) == 1 + 3 * 16

    code, _, err = seedbed("analyze", "dynamics", run, "-o", out)
    assert code == 2
    assert "--overwrite" in err

    code, told, _ = seedbed("analyze", "dynamics", run, "--json")
    document = json.loads(told)
    assert code == 0
    assert document["report"] is None
    assert document["rows"] == json.loads((out / "result.json").read_text())["rows"]
    assert document["runs"][0]["law"].startswith("gamma, gamma ")


def test_wrong_input_writes_nothing(seedbed, run, tmp_path):
    code, told, err = seedbed("analyze", "dynamics", run, tmp_path / "none")
    assert (code, told) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}: not a run or checkpoint")
