"""What is measured of a model before and after its run; of one that is large, what stands for it."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny import config

from seedbed.analysis import run
from seedbed.analysis.run import read_snapshot, snapshot, unmeasured
from seedbed.analysis.weights import affordable
from seedbed.api import Trained
from seedbed.data.store import Store
from seedbed.facts.table import parameter_facts
from seedbed.model import Decoder
from seedbed.train.setup import initial_model, resolve

LAYERS = 3


@pytest.fixture
def model(tiny_store, tmp_path) -> Decoder:
    chosen, _ = resolve(config(tiny_store, tmp_path, f"model.n_layers={LAYERS}"))
    return initial_model(chosen)[0]


def test_of_a_small_model_everything(model, tiny_store):
    found = snapshot(model, Store(tiny_store))
    parts = [part.name for fact in parameter_facts(model) if fact.is_matrix for part in fact.parts()]
    assert [row.name for row in found.weights] == parts
    assert unmeasured(model) == ""


def test_what_older_runs_kept_still_loads():
    """Before rows of zeros were counted."""
    folder = Path(__file__).parents[1] / "fixtures" / "run_v1"
    assert '"zero_rows"' not in (folder / "initial.json").read_text()
    assert {row.stats.zero_rows for row in read_snapshot(folder).weights} == {0}


def test_of_a_large_one_what_is_affordable_and_the_rest_is_named(model, tiny_store, monkeypatch):
    whole = {row.name: row for row in snapshot(model, Store(tiny_store)).weights}
    monkeypatch.setattr(run, "affordable", partial(affordable, budget=1))
    found = snapshot(model, Store(tiny_store)).weights
    assert {row.layer for row in found} == {0, LAYERS - 1}
    assert all(row == whole[row.name] for row in found)
    assert unmeasured(model) == "all layers but 0, 2 and embed.weight and head.weight"


def test_of_a_large_one_sinks_of_fewer_sequences(model, tiny_store, monkeypatch):
    sink = snapshot(model, Store(tiny_store)).sink
    monkeypatch.setattr(run, "SINK_BUDGET", 1)
    fewer = snapshot(model, Store(tiny_store)).sink
    assert sink and fewer
    assert 0 < fewer.queries < sink.queries


def test_of_a_large_one_a_shorter_sample(model, tiny_store, tmp_path, monkeypatch):
    chosen, store = resolve(config(tiny_store, tmp_path, "model.max_seq_len=128"))
    asked: list[int] = []
    trained = Trained(initial_model(chosen)[0].eval(), store.tokenizer(), chosen)

    def generate(*_, max_new_tokens):
        asked.append(max_new_tokens)
        return [SimpleNamespace(text="")]

    monkeypatch.setattr("seedbed.api.generate", generate)
    trained.sample()
    monkeypatch.setattr("seedbed.api.SAMPLE_BUDGET", 1)
    trained.sample()
    assert asked == [128, 64]
