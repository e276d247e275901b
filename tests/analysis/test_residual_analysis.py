"""The residual stream of runs and Transformers models: over texts however they are batched, over steps, resumed."""

import json
import math
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny import config, quiet, sentences

from seedbed.analysis import residual_sources
from seedbed.analysis.residual import analyze
from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub import models
from seedbed.hub.models import open_model
from seedbed.measure.evaluating import evaluating
from seedbed.measure.stream import following
from seedbed.measure.stream_sums import StreamSums
from seedbed.model.attention import document_starts

LENGTH = 24


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    fit(config(tiny_store, folder, "train.steps=4", "train.checkpoint_every=2", "train.keep_checkpoints=9"), quiet)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(6, seed=3)))
    return file


def llama(vocab_size: int) -> "transformers.LlamaForCausalLM":
    options: Any = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=vocab_size, max_position_embeddings=64, **options)
    )


@pytest.fixture(scope="module")
def foreign(tmp_path_factory, run) -> Path:
    """A tiny Llama that reads with the run's tokenizer."""
    folder = tmp_path_factory.mktemp("hf") / "llama"
    torch.manual_seed(0)
    tokenizer = open_model(run).tokenizer
    llama(tokenizer.vocab_size).save_pretrained(folder)
    for file in tokenizer.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def measured(paths, data, parts=None, tell=quiet, **options):
    parts = Parts(None, 0) if parts is None else parts
    return analyze(paths, [data], parts, tell, length=LENGTH, **options)


@pytest.mark.parametrize("which", ["run", "foreign"])
def test_batch_one_is_batch_eight(which, request, data):
    path = request.getfixturevalue(which)
    alone, together = (measured([path], data, tokens=tokens) for tokens in (1, 10**6))
    assert alone.members[0].tokens == together.members[0].tokens
    for table in ("stream", "norms"):
        for a, b in zip(getattr(alone, table), getattr(together, table), strict=True):
            for name, value in vars(a).items():
                same = pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value
                assert vars(b)[name] == same, name


@pytest.mark.parametrize("which", ["run", "foreign"])
def test_padding_on_either_side_and_packing_change_nothing(which, request):
    model = open_model(request.getfixturevalue(which))
    ids = torch.arange(3, 3 + 16).reshape(2, 8)

    def sums(ids: torch.Tensor, doc_ids: torch.Tensor) -> StreamSums:
        with evaluating(model.module), following(model.module, model.facts, doc_ids) as found:
            if which == "run":
                model.read(ids, doc_ids)
            else:  # by positions a Llama tells documents of one row apart
                positions = torch.arange(ids.shape[1]) - document_starts(doc_ids)
                model.module(input_ids=ids, position_ids=positions, use_cache=False)
        return found

    padding, junk = torch.full((2, 3), -1), torch.full((2, 3), 5)
    zeros = torch.zeros_like(ids)
    plain = sums(ids, zeros)
    others = (
        sums(torch.cat([ids, junk], 1), torch.cat([zeros, padding], 1)),
        sums(torch.cat([junk, ids], 1), torch.cat([padding, zeros], 1)),
        sums(ids.reshape(1, 16), torch.tensor([[0] * 8 + [1] * 8])),
    )
    for other in others:
        assert other.tokens == plain.tokens == {"first": 2, "others": 14}
        assert other.unread == {}
        for table in ("stream", "norms"):
            for key, value in getattr(plain, table).items():
                for group in value:
                    assert getattr(other, table)[key][group] == pytest.approx(value[group], rel=1e-5, abs=1e-9)
        for branch, layers in plain.branches.items():
            for layer, value in layers.items():
                for group in value:
                    assert other.branches[branch][layer][group] == pytest.approx(value[group], rel=1e-5, abs=1e-5)


def test_every_checkpoint_and_the_weights_before_the_first_step(run, data):
    result = measured([run], data, every_checkpoint=True)
    assert [(member.model, member.step) for member in result.members] == [("run", 0), ("run", 2), ("run", 4)]
    assert result.members[0].source == "drawn again from the run's configuration and seed"
    newest = measured([run], data)
    assert [vars(row) for row in newest.stream] == [vars(row) for row in result.stream if row.step == 4]
    assert [row.layer for row in newest.stream if row.tokens == "others"] == [-1, 0, 1]
    embedded = newest.stream[0]
    assert (embedded.flow, embedded.attn_ratio, embedded.mlp_cosine) == (0, None, None)
    assert embedded.rms == pytest.approx(embedded.norm / math.sqrt(32))
    assert embedded.rms_median == pytest.approx(embedded.norm_median / math.sqrt(32))
    assert result.problems == newest.problems == []


def test_one_model_is_in_memory_at_a_time(run, data, monkeypatch):
    alive = weakref.WeakSet()
    most = []

    def opening(path):
        most.append(len(alive))
        model = open_model(path)
        alive.add(model.module)
        return model

    monkeypatch.setattr(residual_sources, "open_model", opening)
    measured([run], data, every_checkpoint=True)
    assert most == [0, 0]  # and the one before the first step, which is drawn


def test_a_checkpoint_that_the_run_removes_is_chosen_anew(run, data, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    newest = copy / "checkpoints" / "step_00000004"
    reading = models.read_config

    def removing(folder):
        if folder == newest:
            shutil.rmtree(newest)
        return reading(folder)

    monkeypatch.setattr(models, "read_config", removing)
    (member,) = measured([copy], data).members
    assert (member.step, member.source) == (2, str(copy / "checkpoints" / "step_00000002"))


def test_a_damaged_checkpoint_is_passed_over(run, data, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "checkpoints" / "step_00000002" / "config.yaml").write_text("cut")
    result = measured([copy], data, every_checkpoint=True)
    assert [member.step for member in result.members] == [0, 4]
    assert len(result.problems) == 1
    assert result.problems[0].startswith("run, step 2: passed over: ")


def test_it_goes_on_after_an_interruption(run, data, tmp_path):
    said = []

    def interrupt(line: str) -> None:
        said.append(line)
        if len(said) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured([run], data, Parts(tmp_path, ["key"]), interrupt, tokens=1)
    kept = Parts(tmp_path, ["key"])
    assert len(kept) == 3
    again = measured([run], data, kept, tokens=1)
    assert len(kept) == 6
    assert again == measured([run], data, tokens=1)


def test_models_side_by_side(run, foreign, data):
    result = measured([run, foreign], data)
    first, second = result.newest()
    assert (first.model, first.step, second.model, second.step) == ("run", 4, "llama", None)
    assert (first.attn, first.mlp) == ("layers.*.attn", "layers.*.mlp")
    assert (second.attn, second.mlp) == ("model.layers.*.self_attn", "model.layers.*.mlp")
    assert first.tokens == second.tokens
    last = {row.model: row for row in result.norms if row.layer is None and row.tokens == "others"}
    assert (last["run"].norm, last["llama"].norm) == ("norm", "model.norm")
    for row in result.norms:
        assert row.masking == pytest.approx(row.eps / (row.second_moment + row.eps), rel=0.2)


def test_wrong_input(run, data, tmp_path):
    with pytest.raises(InputError, match="given twice"):
        measured([run, run], data)
    with pytest.raises(InputError, match="at most 8 models"):
        measured([run] * 9, data)
    with pytest.raises(InputError, match="no such folder"):
        measured([tmp_path / "none"], data)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError, match="no text to read"):
        measured([run], empty)


def test_without_data_the_run_s_own_texts(run, foreign):
    parts = Parts(None, 0)
    result = analyze([run, foreign], [], parts, quiet, documents=3, length=LENGTH)
    assert result.data == f"what {run} holds out"
    assert [member.documents for member in result.members] == [3, 3]
    with pytest.raises(InputError, match="has no texts of its own"):
        analyze([foreign], [], parts, quiet)


def test_broken_weights_are_told(foreign, data, tmp_path):
    folder = tmp_path / "broken"
    model: Any = open_model(foreign).module
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.down_proj.weight")[0, 0] = math.nan
    shutil.copytree(foreign, folder)
    model.save_pretrained(folder)
    with pytest.raises(InputError, match="broken: the stream after layer 1 is not finite"):
        measured([folder], data)


def test_zero_vectors_are_told(foreign, data, tmp_path):
    folder = tmp_path / "zero"
    shutil.copytree(foreign, folder)
    model: Any = open_model(foreign).module
    with torch.no_grad():
        model.get_parameter("model.embed_tokens.weight").zero_()
    model.save_pretrained(folder)
    (told,) = measured([folder], data).problems
    assert told.startswith("zero: not finite: massive of the embedded input")
