import json

import pytest
from exports import ROWS, padded_run

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return padded_run(tmp_path_factory.mktemp("padded"))


def test_export(seedbed, run, tmp_path):
    code, out, err = seedbed("export", run, "-o", tmp_path / "e", "--dtype", "bfloat16", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["architecture"] == "SeedbedForCausalLM"
    assert (found["dtype"], found["files"]) == ("bfloat16", ["model.safetensors"])
    assert found["source"].endswith("step_00000002")
    assert max(case["difference"] for case in found["parity"]) < 1e-4
    assert "writing" in err
    code, out, _ = seedbed("export", run / "checkpoints" / "step_00000002", "-o", tmp_path / "e")
    assert code == 0
    assert "left-padded, with cache" in out
    assert "trust_remote_code=True" in out
    assert f"{found['suppressed']} outputs" in out
    assert json.loads((tmp_path / "e" / "config.json").read_text())["vocab_size"] == ROWS


@pytest.mark.parametrize(("given", "told"), [((), "no such folder"), (("--dtype", "int8"), "int8")])
def test_what_is_wrong_is_said(seedbed, tmp_path, given, told):
    code, _, err = seedbed("export", tmp_path / "none", "-o", tmp_path / "e", *given)
    assert code == 2
    assert told in err
    assert not (tmp_path / "e").exists()
