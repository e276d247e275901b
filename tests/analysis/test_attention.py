"""Attention of runs and of Transformers checkpoints, from folder to rows."""

import json
import shutil
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from foreign import mark_beginnings
from tiny import config, quiet, sentences

from seedbed.analysis import attention
from seedbed.analysis.attention import analyze, distinct_names
from seedbed.analysis.attention_sums import interval
from seedbed.analysis.chosen_texts import texts_for
from seedbed.api import fit
from seedbed.data.texts import Texts, read_texts
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import open_model
from seedbed.report.attention_rows import Attention


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=2"), quiet)
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory, tiny_store) -> Path:
    """A Transformers model with the tokenizer of our run: two softmax layers of four heads, peaked."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return saved(model, tmp_path_factory.mktemp("foreign") / "llama", tiny_store)


def saved(model: Any, folder: Path, store: Path) -> Path:
    model.save_pretrained(folder)
    shutil.copytree(store / "tokenizer", folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    texts = [*sentences(11, seed=3), "the small seed.", "a"]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


def measured(paths, data, length=None, count=None, parts=None, tell=quiet) -> Attention:
    parts = Parts(None, None) if parts is None else parts
    return analyze([Path(path) for path in paths], [data], parts, tell, length, count)


def test_rows_are_means_over_the_queries_of_eager_attention(foreign, data):
    found = measured([foreign], data)
    model = transformers.AutoModelForCausalLM.from_pretrained(foreign, attn_implementation="eager")
    texts = read_texts([data], open_model(foreign).tokenizer, 32).texts
    sink, entropy, queries = torch.zeros(2, 4), torch.zeros(2, 4), 0
    for text in texts:
        with torch.no_grad():
            shown = torch.stack(model(torch.tensor([text.ids]), output_attentions=True).attentions)[
                :, 0
            ]  # [L, H, T, T]
        sink += shown[:, :, 1:, 0].sum(-1)
        entropy += torch.special.entr(shown).sum(-1)[:, :, 1:].sum(-1)
        queries += len(text.ids) - 1
    (row,) = found.models
    assert (row.documents, row.queries, row.layers, row.measured, row.heads) == (len(texts), queries, 2, 2, 8)
    assert row.full == sum(len(text.ids) == 32 for text in texts) > 0
    assert [head.sink for head in found.heads] == pytest.approx((sink / queries).flatten().tolist(), abs=1e-5)
    assert [head.entropy for head in found.heads] == pytest.approx((entropy / queries).flatten().tolist(), abs=1e-5)
    assert row.sink == pytest.approx(float(sink.mean() / queries), abs=1e-5)
    assert row.above == sum(head.sink > 0.3 for head in found.heads) / 8
    for layer in found.layers:
        own = [head for head in found.heads if head.layer == layer.layer]
        assert layer.sink == pytest.approx(sum(head.sink for head in own) / 4)
        assert layer.sink_low is not None
        assert layer.sink_high is not None
        assert layer.sink_low < layer.sink < layer.sink_high
        assert layer.entropy_share == pytest.approx(layer.entropy / layer.uniform_entropy)
    places = np.array([place.weight for place in found.places]).reshape(2, 16)
    assert (places > 0).all()
    assert (places.sum(1) < 1).all()


def test_batches_and_order_do_not_matter(run, data, monkeypatch):
    whole = measured([run], data)
    monkeypatch.setattr(attention, "BATCH", 1)  # one by one
    apart = measured([run], data)
    assert [row.sink for row in apart.heads] == pytest.approx([row.sink for row in whole.heads], abs=1e-6)
    assert [row.entropy for row in apart.heads] == pytest.approx([row.entropy for row in whole.heads], abs=1e-6)
    assert [row.sink_low for row in apart.layers] == pytest.approx([row.sink_low for row in whole.layers], abs=1e-6)


def test_two_checkpoints_are_compared_on_the_same_documents(run, foreign, data, tmp_path):
    copied = shutil.copytree(run, tmp_path / "copied")
    marked = mark_beginnings(shutil.copytree(foreign, tmp_path / "llama"))
    found = measured([run, marked, copied], data, length=16)
    assert [row.checkpoint for row in found.differences] == ["llama", "copied"]
    other, same = found.differences
    by_name = {row.checkpoint: row.sink for row in found.models}
    assert other.sink == pytest.approx(by_name["llama"] - by_name["run"])
    assert other.sink_low is not None
    assert other.sink_high is not None
    assert other.sink_low < other.sink < other.sink_high
    assert (same.sink, same.sink_low, same.sink_high) == (0, 0, 0)
    assert found.length == 16
    assert found.models[0].cut > 0
    unmarked = measured([run, foreign], data, length=16)  # its texts begin otherwise
    assert not unmarked.differences


def test_checkpoints_are_opened_once_and_one_is_in_memory_at_a_time(run, foreign, data, monkeypatch):
    opened, alive = [], weakref.WeakSet()

    def opening(path):
        opened.append((path, len(alive)))
        model = open_model(path)
        alive.add(model.module)
        return model

    monkeypatch.setattr(attention, "open_model", opening)
    measured([run, foreign], data, length=16, count=1)
    assert opened == [(run, 0), (foreign, 0)]


def test_a_run_without_data_reads_what_it_holds_out(run):
    assert analyze([run], [], Parts(None, None), quiet, documents=3).models[0].documents == 3


def test_each_checkpoint_has_its_own_count_of_what_was_not_read(run, foreign, data, monkeypatch):
    counts = {run: {"a single token": 5}, foreign: {"a single token": 2}}

    def reading(path, *options):
        return Texts(texts_for(path, *options).texts, Counter(counts[path]))

    monkeypatch.setattr(attention, "texts_for", reading)
    assert measured([run, foreign], data, 16).skipped == {"run": counts[run], "llama": counts[foreign]}


def test_interrupted_work_goes_on(run, data, tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "BATCH", 1)
    made = []
    batch = attention._batch
    monkeypatch.setattr(attention, "_batch", lambda *arguments: made.append(1) or batch(*arguments))

    def interrupting(message: str) -> None:
        if len(made) == 2:
            raise KeyboardInterrupt

    whole = measured([run], data)
    total = len(made)
    made.clear()
    with pytest.raises(KeyboardInterrupt):
        measured([run], data, parts=Parts(tmp_path, "key"), tell=interrupting)
    again = measured([run], data, parts=Parts(tmp_path, "key"))
    assert len(made) == total  # two before, the others after
    assert again == whole


def test_layers_without_attention_are_listed(data, tiny_store, tmp_path):
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    configuration = transformers.Qwen3NextConfig(
        **shape, num_attention_heads=2, num_key_value_heads=2, head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, num_experts=0,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    model = saved(transformers.Qwen3NextForCausalLM(configuration), tmp_path / "hybrid", tiny_store)
    found = measured([model], data, length=16)
    assert (found.models[0].layers, found.models[0].measured) == (2, 1)
    assert {row.layer for row in found.heads} == {1}
    assert [(row.layer, row.reason) for row in found.unmeasured] == [(0, "linear_attention: has no attention weights")]


def test_wrong_input_is_told_before_anything_is_measured(run, foreign, data, tiny_store, tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "_batch", None)
    with pytest.raises(InputError, match=r"run: 5 checkpoints are given, at most 4"):
        measured([run] * 5, data)
    with pytest.raises(InputError, match=r"--length 33: .*llama reads at most 32 tokens"):
        measured([foreign, run], data, length=33)
    with pytest.raises(InputError, match="none: no such folder"):
        measured([run, tmp_path / "none"], data)
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 16, "n_layer": 1, "n_head": 2}
    bloom = saved(transformers.BloomForCausalLM(transformers.BloomConfig(**shape)), tmp_path / "bloom", tiny_store)
    with pytest.raises(InputError, match=r"bloom: BloomForCausalLM does not attend through"):
        measured([bloom], data)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError, match="no text to read"):
        measured([run], empty)


def test_models_without_any_attention_are_refused(data, tiny_store, tmp_path):
    shape: dict[str, Any] = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    mamba = saved(transformers.MambaForCausalLM(transformers.MambaConfig(**shape)), tmp_path / "mamba", tiny_store)
    with pytest.raises(InputError, match="mamba: no layer of MambaForCausalLM has attention weights"):
        measured([mamba], data)


def test_names_that_tell_checkpoints_apart(tmp_path):
    assert distinct_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    steps = [tmp_path / run / "checkpoints" / "step_10" for run in ("a", "b")]
    assert distinct_names(steps) == ["a/checkpoints/step_10", "b/checkpoints/step_10"]
    with pytest.raises(InputError, match=r"a: given twice; give each checkpoint once"):
        distinct_names([tmp_path / "a", tmp_path / "b", tmp_path / "b" / ".." / "a"])


def test_interval_over_documents():
    generator = np.random.default_rng(0)
    queries = generator.integers(50, 200, 100)
    scores = generator.normal(0.4, 0.1, 100)
    low, high = interval(scores * queries, queries)
    assert low is not None
    assert high is not None
    # the spread of a weighted mean: 0.1 * sqrt(sum of squared weights)
    spread = 0.1 * np.sqrt((queries**2).sum()) / queries.sum()
    assert (high - low) / (2 * 1.96 * spread) == pytest.approx(1, abs=0.25)
    assert low < 0.4 < high
    assert interval(np.ones(9), np.ones(9)) == (None, None)
    assert interval(np.full(10, 2.0), np.ones(10)) == (2, 2)
