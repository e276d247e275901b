"""`seedbed analyze ifd`: a folder of results, one document, and one line for what is wrong."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from tiny import config, quiet

from seedbed.api import fit


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_store) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, steps in (("before", 2), ("after", 4)):
        fit(config(tiny_store, folder / name, f"train.steps={steps}"), quiet)
    return [folder / "before", folder / "after"]


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "sft.jsonl"
    records = [{"prompt": "the " * (i % 3 + 1), "response": "grows" + " now" * (i % 4)} for i in range(6)]
    records += [{"prompt": "the", "response": ""}, {"prompt": "the " * 100, "response": "long one"}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_two_runs(seedbed, runs, data, tmp_path):
    out = tmp_path / "out"
    code, text, err = seedbed("analyze", "ifd", *runs, "--data", data, "-o", out)
    assert code == 0, err
    assert "IFD of before" in text and "loss ratio" in text
    assert "records: 6" in text
    assert "left out of 8 records: 1 × empty response" in err and "8 records: 1 × longer than 32 tokens" in err
    written = json.loads((out / "result.json").read_text())
    rows = list(csv.DictReader((out / "records.csv").open()))
    assert len(rows) == len(written["rows"]) == 6
    assert float(rows[0]["ratio"]) == written["rows"][0]["ratio"]
    assert {file.name for file in (out / "figures").iterdir()} >= {"length_bias.svg", "length_bias.png"}
    page = (out / "report.html").read_text()
    assert "model.safetensors" in page and str(data) in page
    assert not (out / "parts.jsonl").exists()

    code, _, err = seedbed("analyze", "ifd", *runs, "--data", data, "-o", out)
    assert (code, "--overwrite" in err) == (2, True)


def test_one_run_as_json(seedbed, runs, data):
    code, text, err = seedbed("analyze", "ifd", runs[1], "--data", data, "--records", 3, "--json")
    assert code == 0, err
    document = json.loads(text)
    assert (document["checkpoint"], document["base"], len(document["rows"])) == ("after", None, 3)
    assert document["template"] == "none" and document["rows"][0]["ratio"] is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["{0}", "{1}", "{0}", "--data", "{data}"], "give one model, or two: BASE CHECKPOINT"),
        (["{0}", "{0}", "--data", "{data}"], "are the same weights; give two models"),
        (["{0}/none", "--data", "{data}"], "none"),
        (["{0}", "--data", "{data}.none"], "no such file or folder"),
        (["{0}", "--data", "{data}", "--response-field", "answr"], "sft.jsonl:1: no field 'answr'"),
        (["{0}", "--data", "{data}", "--chat-template", "tokenizer"], "the tokenizer has none of its own"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(arguments, problem, seedbed, runs, data, tmp_path):
    given = [argument.format(*runs, data=data) for argument in arguments]
    code, text, err = seedbed("analyze", "ifd", *given, "-o", tmp_path / "out")
    assert (code, text) == (2, "")
    assert problem in err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changed", ["configuration", "tokenizer"])
def test_what_was_measured_under_another_configuration_is_not_used(
    seedbed, foreign_folder, data, tmp_path, monkeypatch, changed
):
    """The same file of weights beside another configuration, or another tokenizer, is another model."""
    model, out = shutil.copytree(foreign_folder("gpt2"), tmp_path / "model"), tmp_path / "out"

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("seedbed.report.ifd_page.ifd_page", stop)
        assert seedbed("analyze", "ifd", model, "--data", data, "-o", out)[0] == 130
    if changed == "configuration":
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    else:
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:1]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    code, _, err = seedbed("analyze", "ifd", model, "--data", data, "-o", out)
    assert (code, "goes on" in err) == (0, False)
    seedbed("analyze", "ifd", model, "--data", data, "-o", tmp_path / "fresh")
    found, wanted = (json.loads((folder / "result.json").read_text())["rows"] for folder in (out, tmp_path / "fresh"))
    assert found == wanted
