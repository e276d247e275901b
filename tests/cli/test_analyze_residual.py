"""`seedbed analyze residual`: tables, JSON, a folder, and a page with everything on it."""

import csv
import json
from pathlib import Path

import pytest
from tiny import config, quiet, sentences

from seedbed.api import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2"), quiet)
    return folder


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(4, seed=3)))
    return file


def test_page_tables_and_json(seedbed, run, data, undrawn, tmp_path):
    folder = tmp_path / "out"
    command = ("analyze", "residual", run, "--data", data, "--every-checkpoint", "-o", folder)
    code, out, err = seedbed(*command)
    assert code == 0, err
    assert "run, 2 steps: medians over tokens after the first" in out
    assert "stream.csv" in out
    page = (folder / "report.html").read_text(encoding="utf-8")
    for text in (
        "During training: run",
        "ε masking",
        "drawn again",
        "are not resampled",
        "layers.*.attn",
    ):
        assert text in page or text in out or text in (folder / "models.csv").read_text(), text
    assert {file.stem for file in (folder / "figures").glob("*.svg")} == {
        "stream", "branches_others", "branches_first", "masking", "layers_by_step_0", "trajectories_0",
        "masking_steps_0",
    }  # fmt: skip
    rows = list(csv.DictReader((folder / "stream.csv").open(encoding="utf-8")))
    assert len(rows) == 2 * 3 * 2  # steps, embedded input and layers, tokens
    assert not (folder / "parts.jsonl").exists()

    code, _, err = seedbed(*command)
    assert code == 2
    assert "--overwrite" in err
    code, out, _ = seedbed("analyze", "residual", run, "--data", data, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["stream"] == json.loads((folder / "result.json").read_text())["stream"][6:]
    code, out, _ = seedbed("analyze", "residual", run, "--data", data)
    assert code == 0
    assert "Over the layers" in out
    assert "all rows  with --json, or with -o FOLDER" in out


def test_wrong_input_is_one_line(seedbed, run, data, tmp_path):
    code, out, err = seedbed("analyze", "residual", tmp_path / "none", "--data", data)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}: no such folder")
    code, _, err = seedbed("analyze", "residual", run, "--data", tmp_path / "none.jsonl")
    assert code == 2
    assert "none.jsonl" in err.splitlines()[-1]
