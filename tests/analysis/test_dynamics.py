"""Trajectories of tiny runs: every step measured once, what is damaged told, work that goes on where it was."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import config, quiet, weights

from seedbed.analysis import dynamics
from seedbed.analysis.dynamics import analyze
from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.files.atomic import commit
from seedbed.files.parts import Parts
from seedbed.measure.spectra import gaussian_stats, matrix_stats
from seedbed.measure.trajectory import MEASURES, measures
from seedbed.report.dynamics_rows import Dynamics
from seedbed.train.metrics import read_metrics

STEPS = 6
MORE = ("train.checkpoint_every=2", "train.keep_checkpoints=9", "train.weights_every=1", "model.d_model=16")
PARTS = 2 * 7 + 2


@pytest.fixture(scope="module")
def run(tiny_store, tmp_path_factory) -> Path:
    """Six steps, checkpoints after 2, 4 and 6, rows of weights after each."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, *MORE), quiet)
    return folder


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return shutil.copytree(run, tmp_path / "copy")


def of(*paths: Path) -> Dynamics:
    return analyze(paths, Parts(None, 0), quiet)


def test_every_step_once_from_the_best_source(run):
    result = of(run)
    sources = {row.step: row.source for row in result.rows}
    assert sources == {
        0: "initial", 1: "recorded", 2: "checkpoint", 3: "recorded", 4: "checkpoint", 5: "recorded", 6: "checkpoint",
    }  # fmt: skip
    assert len(result.rows) == 7 * PARTS
    assert len({(row.step, row.component, row.layer) for row in result.rows}) == len(result.rows)
    told = result.runs[0]
    assert (told.initial, told.checkpoints, told.recorded, told.passed_over) == (True, 3, 3, [])
    assert (told.name, told.seed, told.steps) == ("run", 0, STEPS)
    json.dumps(asdict(result), allow_nan=False)
    head = next(row for row in result.rows if row.step == 4 and row.component == "head")
    expected = measures(matrix_stats(weights(run, 4)["head.weight"]))
    assert {name: getattr(head, name) for name in (*MEASURES, "problem")} == expected
    train = {row["step"]: row["tokens"] for row in read_metrics(run) if row["kind"] == "train"}
    assert {row.step: row.tokens for row in result.rows} == {0: 0, **train}
    q = next(one for one in result.references if one.component == "attn.q")
    assert q.stable_rank == gaussian_stats(16, 16).stable_rank


def test_what_the_run_recorded_is_what_its_checkpoints_say(run, copy):
    for folder in (copy / "checkpoints").iterdir():
        shutil.rmtree(folder)
    with_them, without = of(run), of(copy)
    assert without.runs[0].checkpoints == 0
    assert {row.source for row in without.rows} == {"initial", "recorded"}
    numbers = [
        {(row.step, row.component, row.layer): [getattr(row, name) for name in MEASURES] for row in result.rows}
        for result in (with_them, without)
    ]
    assert numbers[0].keys() == numbers[1].keys()
    for key, expected in numbers[0].items():
        assert numbers[1][key] == pytest.approx(expected, rel=1e-9)


def test_what_is_damaged_is_passed_over_with_a_line(copy):
    (copy / "checkpoints" / "step_00000002" / "commit.json").unlink()
    file = copy / "checkpoints" / "step_00000004" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    (copy / "initial.json").write_text("{")
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["kind"] == "weights" and row["step"] == 3:
            row["components"]["head"] = 1
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = of(copy)
    assert {row.step: row.source for row in result.rows} == {
        1: "recorded", 2: "recorded", 4: "recorded", 5: "recorded", 6: "checkpoint",
    }  # fmt: skip
    lines = result.runs[0].passed_over
    assert lines[0].startswith(f"step 0: {copy / 'initial.json'}: damaged (Invalid JSON: ")
    assert lines[1] == "step_00000002 passed over: commit.json is missing (the folder was never finished)"
    assert lines[2] == "step_00000004 passed over: the content of model.safetensors changed (SHA-256 differs)"
    assert lines[3] == "step 3: the row of kind weights in metrics.jsonl is damaged"
    assert len(lines) == 4


def test_a_matrix_without_a_number_is_told_and_leaves_the_mean(copy):
    folder = copy / "checkpoints" / "step_00000004"
    tensors = load_file(folder / "model.safetensors")
    tensors["layers.1.attn.o.weight"].zero_()
    tensors["layers.0.mlp.down.weight"][0, 0] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    (folder / "commit.json").unlink()
    commit(folder)
    result = of(copy)
    lines = result.runs[0].passed_over
    assert "attn.o of layer 1: all entries are zero (step 4)" in lines
    assert "mlp.down of layer 0: 1 of 1024 entries are NaN or infinite (step 4)" in lines
    assert "attn.o: not all of its matrices have a number, so no mean over them (step 4)" in lines
    points = {(one.component, one.measure): one.points for one in result.turns}
    assert points["attn.o", "stable_rank"] == points["mlp.down", "std"] == 6
    assert points["attn.o", "std"] == points["attn.q", "stable_rank"] == 7  # zeros have a std


def test_shards_are_put_together(copy, run):
    """The same weights in two files, as two ranks write them, give the same numbers."""
    folder = copy / "checkpoints" / "step_00000004"
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model").mkdir()
    for rank, ends in enumerate(((0, 0.5), (0.5, 1))):
        shards, starts = {}, {}
        for name, whole in tensors.items():
            first, last = (int(end * len(whole)) for end in ends)
            shards[name] = whole[first:last].clone()
            starts[name] = {"saved_offsets": [first] + [0] * (whole.ndim - 1)}
        metadata = {"DCP_SHARDING_INFO": json.dumps(starts)}
        save_file(shards, folder / "model" / f"rank_{rank}.safetensors", metadata)
    state = json.loads((folder / "state.json").read_text()) | {"format_version": 2}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "commit.json").unlink()
    commit(folder)
    assert of(copy).runs[0].passed_over == []
    assert [asdict(row) | {"run": ""} for row in of(copy).rows] == [asdict(row) | {"run": ""} for row in of(run).rows]


def test_interrupted_work_goes_on_and_measures_nothing_twice(run, tmp_path, monkeypatch):
    measured = []
    real = dynamics.matrix_stats
    monkeypatch.setattr(dynamics, "matrix_stats", lambda matrix: measured.append(matrix) or real(matrix))

    def interrupt(said: str) -> None:
        if "checkpoint 2" in said and "mlp.up" in said:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze([run], Parts(tmp_path / "out", "key"), interrupt)
    before = len(measured)
    assert PARTS < before < 2 * PARTS
    result = analyze([run], Parts(tmp_path / "out", "key"), quiet)
    assert len(measured) == 3 * PARTS
    assert result == of(run)


def test_the_same_weights_are_measured_once(run, copy, monkeypatch):
    """The last update of a schedule that ends at 0 changes nothing; two runs may share their beginning."""
    measured = []
    real = dynamics.matrix_stats
    monkeypatch.setattr(dynamics, "matrix_stats", lambda matrix: measured.append(matrix) or real(matrix))
    result = of(run, copy)
    assert len(measured) == 3 * PARTS
    assert [one.name for one in result.runs] == ["run", "copy"]
    assert len(result.rows) == 2 * 7 * PARTS
    assert {one.weights_sha256 for one in result.runs} == {result.runs[0].weights_sha256}


def test_the_same_weights_cut_otherwise_are_measured_anew(run, monkeypatch):
    """Another configuration may name and cut the same tensors in another way."""
    parts, real = Parts(None, 0), dynamics.meta_facts
    before = {(row.step, row.layer, row.component): row.std for row in analyze([run], parts, quiet).rows}

    def swapped(model):
        found = real(model)
        for fact in found:
            if fact.parts()[-1].role == "mlp.up":
                gate, up = fact.blocks
                blocks = replace(gate, rows=up.rows), replace(up, rows=gate.rows)
                yield replace(fact, blocks=blocks)
            else:
                yield fact

    monkeypatch.setattr(dynamics, "meta_facts", swapped)
    after = {(row.step, row.layer, row.component): row.std for row in analyze([run], parts, quiet).rows}
    assert before[4, 0, "mlp.up"] != before[4, 0, "mlp.gate"]
    assert after[4, 0, "mlp.up"] == before[4, 0, "mlp.gate"]
    assert after[4, 0, "attn.o"] == before[4, 0, "attn.o"]


def test_runs_of_one_name_are_told_apart(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "elsewhere" / "run")
    assert [one.name for one in of(run, other).runs] == [str(run), str(other)]


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["none"], "not a run or checkpoint"),
        (["run", "run"], "given twice"),
        (["run/checkpoints/step_00000002"], "is a checkpoint"),
        (["run"] * 9, "9 runs: a figure holds 8 apart"),
    ],
)
def test_wrong_input(run, paths, told):
    with pytest.raises(InputError, match=told):
        of(*(run.parent / path for path in paths))


def test_a_run_without_a_step_to_show(copy):
    for folder in (copy / "checkpoints").iterdir():
        (folder / "commit.json").unlink()
    (copy / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match=r"no step can be shown: step_00000002 passed over: commit.json is missing"):
        of(copy)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(InputError, match="it has no checkpoint yet; train it first"):
        of(copy)
