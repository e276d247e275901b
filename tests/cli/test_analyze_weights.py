"""`seedbed analyze weights` and `compare`: tables, one document, a folder; wrong input changes nothing."""

import csv
import json
from pathlib import Path

import pytest
from tiny import config, quiet

from seedbed.api import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2"), quiet)
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with open(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def test_weights_of_a_run(seedbed, run, undrawn, tmp_path):
    out = tmp_path / "out"
    code, printed, err = seedbed("analyze", "weights", run, "-o", out)
    assert code == 0, err
    assert "Components: scale, rank, directions of rows" in printed
    assert "(18 of 18)" not in printed and "18 of 18 (16 matrices and 2 joint)" in err
    assert "matrices measured: 16 of 16 and 2 joint" in printed
    assert sorted(file.name for file in out.iterdir()) == [
        "components.csv", "figures", "matrices.csv", "profiles.csv", "report.html", "result.json", "spectra.csv",
    ]  # fmt: skip
    document = json.loads((out / "result.json").read_text())
    matrices = rows(out / "matrices.csv")
    assert [row["name"] for row in matrices] == [row["name"] for row in document["matrices"]]
    assert float(matrices[0]["ratio_er99"]) == document["matrices"][0]["ratio_er99"]
    values = [row for row in rows(out / "spectra.csv") if row["name"] == matrices[1]["name"]]
    assert [int(row["index"]) for row in values] == list(range(1, 33))
    assert float(values[0]["sigma"]) == float(matrices[1]["spectral"])

    code, _, err = seedbed("analyze", "weights", run, "-o", out)
    assert (code, err.count("--overwrite")) == (2, 1)
    _, printed, _ = seedbed("analyze", "weights", run, "--json")
    assert json.loads(printed)["components"] == document["components"]


def test_a_run_compared_with_its_first_weights(seedbed, run):
    code, printed, err = seedbed("analyze", "compare", run)
    assert code == 0, err
    assert "run, initialized" in printed and "Stable rank (ratio to Gaussian)" in printed
    assert printed.splitlines()[-1].startswith("all rows ") and len(printed.splitlines()) < 50


def test_wrong_input_is_one_line_and_nothing_is_written(seedbed, run, tmp_path):
    out = tmp_path / "out"
    for arguments, told in (
        (["weights", tmp_path / "none"], str(tmp_path / "none")),
        (["weights", tmp_path], str(tmp_path)),
        (["compare", run, run], "are the same weights"),
        (["compare", run, "--cohort", tmp_path / "none.json"], "none.json"),
    ):
        code, printed, err = seedbed("analyze", *arguments, "-o", out)
        assert (code, printed, out.exists()) == (2, "", False)
        assert err.startswith("error: ") and err.count("\n") == 1 and told in err
