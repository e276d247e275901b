"""Which checkpoints are compared, under which names, and what a run kept of its first weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny import config, quiet

from seedbed.analysis.compare import analyze, sources
from seedbed.analysis.weights import analyze as analyze_weights
from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.report.compare_rows import compared_tables

LAST = "step_00000003"


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    """A run of three steps with a checkpoint at each: two layers, SwiGLU, a gate."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    overrides = "train.steps=3", "train.checkpoint_every=1", "train.keep_checkpoints=3", "model.attention.gate=headwise"
    fit(config(tiny_store, folder, *overrides), quiet)
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=3, n_head=2, n_positions=16)
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    transformers.GPT2LMHeadModel(settings).save_pretrained(folder)
    return folder


def test_a_run_alone_is_compared_with_its_first_weights(run):
    initial, trained = analyze(sources([run])).models
    assert (initial.name, trained.name) == ("run, initialized", "run, step 3")
    kept = json.loads((run / "initial.json").read_text())["weights"]
    assert [row.stable_rank for row in initial.matrices] == [row["stats"]["stable_rank"] for row in kept]
    assert [row.depth for row in initial.matrices] == [
        None if row["layer"] is None else float(row["layer"]) for row in kept
    ]
    assert (initial.parameters, initial.layers, initial.unmeasured) == (trained.parameters, 2, 0)
    assert (initial.spectra, initial.densities, initial.cosines) == ([], [], [])
    assert trained.matrices == analyze_weights(run).matrices
    before, after = ({row.name: row.rms for row in model.matrices} for model in (initial, trained))
    assert set(before) == {name for name in after if "qkv" not in name}
    assert all(0 < abs(before[name] - after[name]) < 0.2 * after[name] for name in before)  # three steps


def test_names_are_short_and_tell_apart(run, tmp_path):
    steps = run / "checkpoints"
    found = sources([run / "initial.json", steps / "step_00000001", steps / LAST])
    assert [one.name for one in found] == ["run, initialized", "run, step 1", "run, step 3"]
    other = tmp_path / "run"
    shutil.copytree(steps / "step_00000001", other)
    assert [one.name for one in sources([run, other])] == [f"{run}, step 3", str(other)]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (lambda run, gpt2: [run, run / "checkpoints" / LAST], r"run and .*step_00000003 are the same weights"),
        (lambda run, gpt2: [gpt2], r"gpt2: one checkpoint, and nothing to compare it with"),
        (lambda run, gpt2: [run / "checkpoints" / LAST], r"one checkpoint, and nothing to compare it with"),
        (lambda run, gpt2: [run] * 9, "9 checkpoints: a figure tells 8 apart"),
        (lambda run, gpt2: [run, run.parent / "none"], "none"),
    ],
)
def test_what_cannot_be_compared(run, gpt2, paths, message):
    with pytest.raises(InputError, match=message):
        sources(paths(run, gpt2))


def test_first_weights_that_are_damaged_or_of_another_model(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "initial.json").write_text('{"weights": 3}')
    with pytest.raises(InputError, match=r"initial\.json: damaged"):
        analyze(sources([copy]))
    kept = json.loads((run / "initial.json").read_text())
    kept["weights"][1]["name"] = "layers.7.x.weight"
    (copy / "initial.json").write_text(json.dumps(kept))
    with pytest.raises(InputError, match=r"has layers\.7\.x\.weight, which the run's model has not"):
        analyze(sources([copy]))


def test_models_of_different_kinds_meet_over_relative_depth(run, gpt2):
    ours, theirs = analyze(sources([run, gpt2])).models
    assert {row.depth for row in ours.profiles} == {0, 1}
    assert {row.depth for row in theirs.profiles} == {0, 0.5, 1}
    tables = compared_tables([ours, theirs])
    assert set(tables) == {"matrices", "components", "profiles", "spectra"}
    assert tables["components"].to_csv().startswith("checkpoint,role,matrices,")
    assert [row.checkpoint for row in tables["matrices"]] == [
        *["run, step 3"] * len(ours.matrices), *["gpt2"] * len(theirs.matrices),
    ]  # fmt: skip
    assert tables["matrices"][-1].stable_rank == theirs.matrices[-1].stable_rank


def test_interrupted_it_goes_on(run, gpt2, tmp_path):
    found = sources([run, gpt2])
    whole = analyze(found)

    def stop(text: str) -> None:
        if text.startswith("gpt2 (2 of 2): 5 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze(found, Parts(tmp_path, "key"), stop)
    parts = Parts(tmp_path, "key")
    shapes = {(row.rows, row.columns) for row in whole.models[0].matrices}
    assert len(parts) == len(whole.models[0].matrices) + len(shapes) + 4
    assert analyze(found, parts) == whole
