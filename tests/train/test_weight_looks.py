"""Weights recorded during training: the numbers of a checkpoint, on a schedule, and nothing else changes."""

import json

import pytest
import torch
from tiny import config, quiet, same, weights
from torch import nn

from seedbed.api import fit
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts, part_of
from seedbed.measure.spectra import matrix_stats
from seedbed.measure.trajectory import measures
from seedbed.parallel.world import World
from seedbed.train import looks
from seedbed.train.looks import weight_components
from seedbed.train.metrics import read_metrics
from seedbed.train.run import RESUMABLE
from seedbed.train.setup import resolve, start

GATED = ("model.attention.gate=elementwise", "model.attention.n_kv_heads=1")


@pytest.fixture(scope="module")
def pair(tiny_store, tmp_path_factory):
    """A run that looks at its weights, and one that does not."""
    folder = tmp_path_factory.mktemp("pair")
    for name, every in (("plain", 0), ("looked", 2)):
        fit(config(tiny_store, folder / name, *GATED, f"train.weights_every={every}", "train.log_every=4"), quiet)
    return folder


def test_each_matrix_is_measured_as_it_would_be_by_itself(tiny_store, tmp_path):
    chosen, store = resolve(config(tiny_store, tmp_path, *GATED))
    model = start(chosen, tmp_path, store).model
    found = weight_components(model, World(torch.device("cpu")))
    state = model.state_dict()
    parts = [(fact, part) for fact in parameter_facts(model) if fact.is_matrix for part in fact.parts()]
    assert len(found) == len(parts) == 2 * 8 + 2
    for fact, part in parts:
        key = part.role if part.layer is None else f"{part.role}/{part.layer}"
        assert found[key] == measures(matrix_stats(part_of(state[fact.name], part)))
    assert list(found)[:3] == ["embed", "attn.q/0", "attn.q/1"]
    assert list(found)[-1] == "head"
    assert {name.partition("/")[0] for name in found} >= {"attn.gate", "mlp.gate", "mlp.down"}


def test_of_experts_of_a_layer_the_mean_is_kept(monkeypatch):
    model = nn.ModuleDict({name: nn.Linear(4, 4, bias=False) for name in "ab"})
    facts = [ParameterFact(f"{name}.weight", "mlp.up", (4, 4), 4, 4, layer=0, n_layers=1) for name in "ab"]
    monkeypatch.setattr(looks, "parameter_facts", lambda _: facts)
    ranks = [matrix_stats(weight).stable_rank for weight in model.parameters()]
    found = weight_components(model, World(torch.device("cpu")))
    assert list(found) == ["mlp.up/0"]
    assert found["mlp.up/0"]["stable_rank"] == pytest.approx(sum(ranks) / 2)


def test_rows_come_on_a_schedule_with_the_weights_of_their_step(pair):
    rows = [row for row in read_metrics(pair / "looked") if row["kind"] == "weights"]
    assert [row["step"] for row in rows] == [2, 4, 6]
    train = {row["step"]: row for row in read_metrics(pair / "looked") if row["kind"] == "train"}
    assert rows[1]["tokens"] == train[4]["tokens"]
    head = measures(matrix_stats(weights(pair / "looked", 6)["head.weight"]))
    assert rows[2]["components"]["head"] == head
    assert rows[0]["components"]["head"] != head
    assert not [row for row in read_metrics(pair / "plain") if row["kind"] == "weights"]


def test_training_is_the_same_bit_for_bit(pair):
    assert same(weights(pair / "plain", 6), weights(pair / "looked", 6))
    losses = [
        [row["loss"] for row in read_metrics(pair / name) if row["kind"] == "train"] for name in ("plain", "looked")
    ]
    assert losses[0] == losses[1]


def test_the_report_shows_them(pair):
    shown, plain = ((pair / name / "report.html").read_text() for name in ("looked", "plain"))
    assert "Stable rank over steps, as recorded by train.weights_every" in shown
    assert "Mean absolute cosine of rows over steps" in shown
    assert "as recorded by train.weights_every" not in plain


def test_a_resumed_run_has_each_row_once_and_may_look_at_other_steps(tiny_store, tmp_path):
    assert "train.weights_every" in RESUMABLE
    told = ("train.checkpoint_every=3", "train.weights_every=2")
    fit(config(tiny_store, tmp_path / "r", *told, "train.steps=6"), quiet)
    for step in ("00000006",):
        (tmp_path / "r" / "checkpoints" / f"step_{step}" / "commit.json").unlink()
    fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=3", "train.weights_every=1"), quiet)
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "weights"] == [2, 4, 5, 6]


def test_tensorboard_gets_the_numbers(tiny_store, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(config(tiny_store, tmp_path / "r", "train.weights_every=3", "train.tensorboard=true"), quiet)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("weights/components/attn.q/0/stable_rank")] == [3, 6]
