"""`seedbed analyze tokens`: two runs, one folder of results, and one line where they cannot be compared."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from few_texts import TEXTS
from tiny import config, quiet, sentences

from seedbed.api import fit


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_store) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, gamma in (("half", 0.5), ("one", 1.0)):
        fit(config(tiny_store, folder / name, "train.steps=2", "init.law=gamma", f"init.gamma={gamma}"), quiet)
    return folder / "half", folder / "one"


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "texts.jsonl"
    records = [{"text": text, "lang": "en"} for text in sentences(14, seed=3)]
    records += [{"text": text, "lang": "zh"} for text in (TEXTS[2], "<script>alert(1)</script>")]
    file.write_text("".join(json.dumps(record) + "\n" for record in [*records, {"text": ""}]))
    return file


def test_a_folder_of_results(seedbed, runs, data, tmp_path):
    out = tmp_path / "out"
    code, text, err = seedbed("analyze", "tokens", *runs, "--data", data, "-o", out, "--length", 24)
    assert code == 0, err
    assert "Bins of difficulty" in text
    assert "bits per byte, half" in text
    assert "batch" in err or "intervals" in err
    result = json.loads((out / "result.json").read_text())
    assert (result["a"], result["b"], result["length"]) == ("half", "one", 24)
    assert result["skipped"] == {"empty text": 1}
    assert len(result["documents"]) == 16
    with open(out / "bins.csv") as file:
        bins = list(csv.DictReader(file))
    assert sum(int(row["tokens"]) for row in bins) == result["overall"]["tokens"]
    assert bins[0]["gain.low"]
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;" in page
    assert (out / "figures" / "difficulty.svg").is_file()
    assert not (out / "parts.jsonl").exists()

    code, _, err = seedbed("analyze", "tokens", *runs, "--data", data, "-o", out)
    assert code == 2
    assert "--overwrite" in err


def test_one_json_document(seedbed, runs, data):
    code, text, _ = seedbed("analyze", "tokens", *runs, "--data", data, "--json", "--documents", 12)
    assert code == 0
    document = json.loads(text)
    assert document["report"] is None
    assert document["overall"]["documents"] == 12


def test_models_that_cannot_be_compared(seedbed, runs, data, tmp_path):
    out = tmp_path / "out"
    code, text, err = seedbed("analyze", "tokens", runs[0], runs[0], "--data", data, "-o", out)
    assert (code, text) == (2, "")
    assert "are the same weights; give two models" in err.splitlines()[-1]
    code, _, err = seedbed("analyze", "tokens", runs[0], tmp_path / "none", "--data", data, "-o", out)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"error: {tmp_path / 'none'}: ")
    (tmp_path / "empty.jsonl").write_text("")
    code, _, err = seedbed("analyze", "tokens", *runs, "--data", tmp_path / "empty.jsonl", "-o", out)
    assert code == 2
    assert "no text to read" in err.splitlines()[-1]
    assert not out.exists()


def test_what_was_measured_under_another_configuration_is_not_used(
    seedbed, foreign_folder, data, tmp_path, monkeypatch
):
    """The same files of weights beside another configuration are another model."""
    from safetensors.torch import load_file, save_file

    models = [shutil.copytree(foreign_folder("gpt2"), tmp_path / name) for name in "ab"]
    tensors = load_file(models[1] / "model.safetensors")
    tensors["transformer.wpe.weight"] += 1
    save_file(tensors, models[1] / "model.safetensors", metadata={"format": "pt"})

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("seedbed.report.tokens_page.tokens_page", stop)
        assert seedbed("analyze", "tokens", *models, "--data", data, "-o", tmp_path / "out")[0] == 130
    config = json.loads((models[0] / "config.json").read_text())
    (models[0] / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    code, _, err = seedbed("analyze", "tokens", *models, "--data", data, "-o", tmp_path / "out")
    assert (code, "goes on" in err) == (0, False)
    seedbed("analyze", "tokens", *models, "--data", data, "-o", tmp_path / "fresh")
    found, wanted = (json.loads((tmp_path / name / "result.json").read_text())["bins"] for name in ("out", "fresh"))
    assert found == wanted
