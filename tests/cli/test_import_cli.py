"""`seedbed import`: what it prints, and how wrong input ends."""

import json

import pytest

pytest.importorskip("transformers")

from exports import padded_run
from tiny import quiet

from seedbed.hub.exporting import export
from seedbed.hub.models import open_model


def test_import(seedbed, foreign_folder, tmp_path):
    code, out, err = seedbed("import", foreign_folder("mistral"), "-o", tmp_path / "run")
    assert code == 0
    assert "batch 8, length 8, left-padded, with cache" in out
    assert "14,160 parameters of mistral" in out
    assert "note: attention slides over 8 tokens of 64: max_seq_len=8, where it is full" in out
    assert err == "copying 14,160 parameters of MistralForCausalLM\ncomparing what both models say\n"
    code, out, _ = seedbed("generate", tmp_path / "run", "a seed", "--max-new-tokens", 3, "--temperature", 0)
    assert code == 0
    assert open_model(tmp_path / "run").max_length == 8
    code, out, _ = seedbed("analyze", "weights", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out)["parameters"] == 14_160


def test_import_as_json(seedbed, foreign_folder, tmp_path):
    code, out, _ = seedbed("import", foreign_folder("gpt2"), "-o", tmp_path / "run", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["run"], told["family"], told["parameters"]) == (str(tmp_path / "run"), "gpt2", 12_736)
    assert len(told["parity"]) == 8
    assert max(case["difference"] for case in told["parity"]) < 1e-4


def test_a_family_that_is_not_known(seedbed, foreign_folder, tmp_path):
    code, out, err = seedbed("import", foreign_folder("mamba"), "-o", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "config.json: model_type 'mamba' is no family that is imported" in err
    assert not list(tmp_path.iterdir())


def test_an_export_of_ours(seedbed, tmp_path):
    folder = tmp_path / "export"
    export(padded_run(tmp_path), folder, quiet)
    with open(folder / "README.md", "a") as card:
        card.write("\nLicence: do as you like\n")
    code, out, _ = seedbed("import", folder, "-o", tmp_path / "back")
    assert code == 0
    assert "parameters of seedbed" in out
    for command in (["generate", folder, "a seed", "--max-new-tokens", 3], ["analyze", "weights", folder]):
        assert seedbed(*command)[0] == 0
    code, _, err = seedbed("export", folder, "-o", tmp_path / "again")
    assert (code, err.count("\n")) == (2, 1)
    assert "is a checkpoint of Transformers already" in err
    told = json.loads((folder / "config.json").read_text())
    del told["architecture"]["norm_eps"]
    (folder / "config.json").write_text(json.dumps(told))
    code, out, err = seedbed("import", folder, "-o", tmp_path / "more")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "config.json: architecture does not say norm_eps" in err
    assert not (tmp_path / "more").exists()
