"""`seedbed analyze attention`: tables or one document, a folder on request, and nothing written on wrong input."""

import csv
import json
import re

import pytest
from tiny import config, quiet, sentences

from seedbed.api import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store):
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2"), quiet)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(4, seed=3)))
    return file


def test_tables_and_a_folder(seedbed, run, data, tmp_path):
    out = tmp_path / "new" / "attention"
    code, shown, err = seedbed("analyze", "attention", run, "--data", data, "--length", 24, "-o", out)
    assert code == 0, err
    assert "T = 24" in shown
    assert re.search(r"run: (\d+) of \1 tokens \(\d+ s\)$", err.strip())
    assert f"report    {out / 'report.html'}" in shown
    with open(out / "heads.csv") as file:
        heads = list(csv.DictReader(file))
    assert [(row["layer"], row["head"]) for row in heads] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    result = json.loads((out / "result.json").read_text())
    assert [str(row["sink"]) for row in result["heads"]] == [row["sink"] for row in heads]
    names = {"sink_heads", "sink_layers", "entropy_layers", "first_tokens"}
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"{n}.{kind}" for n in names for kind in ("svg", "png")
    }
    page = (out / "report.html").read_text()
    assert result["models"][0]["tokens_sha256"] in page
    assert not (out / "parts.jsonl").exists()

    code, _, err = seedbed("analyze", "attention", run, "--data", data, "--length", 24, "-o", out)
    assert (code, "--overwrite" in err) == (2, True)
    code, shown, _ = seedbed("analyze", "attention", run, "--data", data, "--length", 24, "--json")
    assert json.loads(shown)["heads"] == result["heads"]


def test_wrong_input_is_one_line_and_writes_nothing(seedbed, run, data, tmp_path):
    out = tmp_path / "out"
    code, shown, err = seedbed("analyze", "attention", run, tmp_path / "none", "--data", data, "-o", out)
    assert (code, shown) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}")
    code, _, err = seedbed("analyze", "attention", run, "--data", data, "--length", 999, "-o", out)
    assert code == 2
    assert err.splitlines()[-1] == f"error: --length 999: {run} reads at most 32 tokens"
    assert not out.exists()
