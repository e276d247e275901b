"""Training: one update whatever the accumulation, stops before harm, what a run starts from and leaves."""

import json
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file
from stores import Text, make_store
from tiny import config, quiet, same, sentences, weights

from seedbed.api import fit, generate
from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.errors import GuardStop, InputError
from seedbed.train import loop, setup
from seedbed.train.metrics import read_metrics
from seedbed.train.setup import resolve, start


def test_training_learns_and_a_finished_run_stays_as_it_is(tiny_store, tmp_path, with_page):
    run = fit(config(tiny_store, tmp_path / "r", "train.steps=40", "optim.lr=1e-2", "train.eval_every=10"), quiet)
    rows = [row for row in run.metrics if row["kind"] == "eval"]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert rows[-1]["nats_per_token"] < 0.7 * rows[0]["nats_per_token"]
    before = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    again = fit(config(tiny_store, tmp_path / "r", "train.steps=40", "optim.lr=1e-2", "train.eval_every=10"), quiet)
    assert again.summary == run.summary
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == before
    assert "report.html" in {file.name for file in (tmp_path / "r").iterdir()}
    (answer,) = generate(tmp_path / "r", ["the small"], max_new_tokens=8, temperature=0.0)
    (cold,) = generate(tmp_path / "r", ["the small"], max_new_tokens=8, temperature=1e-4, seed=5)
    assert (cold.ids, cold.text) == (answer.ids, answer.text)  # case 45: greedy


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_accumulation_changes_nothing(tiny_store, tmp_path, optimizer):  # cases 23, 34
    """20 steps of 1x4 and 4x1 in float64: documents of all lengths, so micro-batches hold unequal token counts."""
    losses = []
    for micro in (4, 1):
        c, store = resolve(
            config(
                tiny_store,
                tmp_path / str(micro),
                f"train.micro_batch_size={micro}",
                f"optim.name={optimizer}",
                "train.steps=20",
            )
        )
        job = start(c, tmp_path / str(micro), store)
        job.model.double()
        job.optimizers = loop_optimizers(job)
        losses.append([loop.train_step(job)["loss"] for _ in range(20)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)
    assert losses[0][-1] < losses[0][0] - 0.1


def loop_optimizers(job):
    from seedbed.facts.table import parameter_facts
    from seedbed.optim.groups import build_optimizers

    return build_optimizers(job.model, parameter_facts(job.model), job.config.optim)


def test_an_infinite_weight_stops_the_run_before_the_step(tiny_store, tmp_path, monkeypatch):  # case 25
    real = loop.train_step

    def poisoned(job):
        if job.step == 4:
            with torch.no_grad():
                job.model.layers[0].mlp.down.weight[0, 0] = torch.inf
        return real(job)

    monkeypatch.setattr(loop, "train_step", poisoned)
    with pytest.raises(GuardStop, match=r"step 5: loss nan.*stopped before the update"):
        fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.keep_checkpoints=1"), quiet)
    assert all(torch.isfinite(w).all() for w in weights(tmp_path / "r", 4).values())
    assert [row["step"] for row in read_metrics(tmp_path / "r") if row["kind"] == "train"][-1] == 4


def test_weights_that_are_not_finite_are_never_saved(tiny_store, tmp_path, monkeypatch):
    real = loop.train_step

    def poisoned(job):
        row = real(job)
        if job.step == 4:
            with torch.no_grad():
                job.model.embed.weight[0, 0] = torch.nan
        return row

    monkeypatch.setattr(loop, "train_step", poisoned)
    with pytest.raises(GuardStop, match=r"embed\.weight is not finite"):
        fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.keep_checkpoints=1"), quiet)
    assert [path.name for path in (tmp_path / "r" / "checkpoints").iterdir()] == ["step_00000002"]


def test_a_batch_without_a_supervised_token_stops_the_run(tiny_store, tmp_path):  # case 19's kind
    c, store = resolve(config(tiny_store, tmp_path / "r"))
    job = start(c, tmp_path / "r", store)
    batch = job.loader.next_batch()
    job.loader.next_batch = lambda: batch._replace(targets=torch.full_like(batch.targets, -100))
    before = job.model.embed.weight.clone()
    with pytest.raises(GuardStop, match="no token of the batch is supervised"):
        loop.train_step(job)
    assert torch.equal(job.model.embed.weight, before)


@pytest.mark.parametrize(
    ("every", "steps_evaluated"), [(-1, []), (0, [6]), (100, [6]), (4, [4, 6]), (3, [3, 6])]
)  # case 43
def test_evaluation_interval(tiny_store, tmp_path, every, steps_evaluated):
    run = fit(config(tiny_store, tmp_path / "r", f"train.eval_every={every}"), quiet)
    assert [row["step"] for row in run.metrics if row["kind"] == "eval"] == steps_evaluated
    assert (run.summary.nats_per_token is None) == (not steps_evaluated)
    if every == -1:
        assert "not evaluated" in str(run.summary)


def test_a_dead_model_stops_the_run(tiny_store, tmp_path):
    with pytest.raises(GuardStop, match=r"step 2: .*(exactly 0|gradient norm nan|loss nan)"):
        fit(config(tiny_store, tmp_path / "r", "optim.lr=1e6", "optim.schedule.kind=constant"), quiet)


def test_init_from_takes_weights_only(tiny_store, tmp_path, with_page):
    fit(config(tiny_store, tmp_path / "a"), quiet)
    before = weights(tmp_path / "a", 6)
    c = config(tiny_store, tmp_path / "b", f"train.init_from={tmp_path / 'a'}", "optim.name=adamw", "run.seed=5")
    c, store = resolve(c)
    job = start(c, tmp_path / "b", store)
    assert (job.step, job.tokens) == (0, 0)
    assert same(dict(job.model.state_dict()), before)
    assert job.receipt["init_from"].endswith("step_00000006")
    run = fit(c, quiet)
    assert run.summary.steps == 6
    with pytest.raises(InputError, match=r"layers\.2\.attn_norm\.weight is missing"):
        fit(config(tiny_store, tmp_path / "c", f"train.init_from={tmp_path / 'a'}", "model.n_layers=3"), quiet)
    with pytest.raises(InputError, match="not a run or checkpoint"):
        fit(config(tiny_store, tmp_path / "d", f"train.init_from={tmp_path}"), quiet)


@pytest.mark.slow
def test_compiling_changes_no_name_and_hardly_a_loss(tiny_store, tmp_path):  # case 42
    plain = fit(config(tiny_store, tmp_path / "a"), quiet)
    compiled = fit(config(tiny_store, tmp_path / "b", "train.compile=true"), quiet)
    assert weights(tmp_path / "a", 6).keys() == weights(tmp_path / "b", 6).keys()
    losses = [[row["loss"] for row in run.metrics if row["kind"] == "train"] for run in (plain, compiled)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_bf16_autocast_keeps_weights_and_moments_in_fp32(tiny_store, tmp_path):  # case 26
    small = ["model.d_model=8", "model.attention.n_heads=1", "train.steps=2", "train.batch_size=1"]
    fit(config(tiny_store, tmp_path / "r", "train.precision=bf16", *small), quiet)
    state = load_file(tmp_path / "r/checkpoints/step_00000002/optimizer.safetensors")
    assert {tensor.dtype for tensor in (*state.values(), *weights(tmp_path / "r", 2).values())} == {torch.float32}


def test_the_run_folder_says_everything(tiny_store, tmp_path, with_page):
    run = fit(config(tiny_store, tmp_path / "r"), quiet)
    assert run.config == resolve(config(tiny_store, tmp_path / "r"))[0]
    receipt = json.loads((tmp_path / "r" / "receipt.json").read_text())
    assert (receipt["plan"]["law"], receipt["seed"]) == ("gamma", 0)
    page = (tmp_path / "r" / "report.html").read_text()
    assert f"{run.summary.nats_per_token:.3f}" in page


def test_unset_and_unfitting_fields_are_refused(tiny_store, tmp_path):
    with pytest.raises(InputError, match=r"run\.dir is not set"):
        fit(Config.load(None, [f"data.store={tiny_store}"]), quiet)
    with pytest.raises(InputError, match=r"data\.store is not set"):
        fit(Config.load(None, [f"run.dir={tmp_path / 'r'}"]), quiet)
    with pytest.raises(InputError, match=r"model\.vocab_size=200 is smaller"):
        fit(config(tiny_store, tmp_path / "r", "model.vocab_size=200"), quiet)
    with pytest.raises(InputError, match=r"model\.max_seq_len=16 is shorter"):
        fit(config(tiny_store, tmp_path / "r", "model.max_seq_len=16"), quiet)
    with pytest.raises(InputError, match=r"optim\.schedule\.warmup"):
        fit(config(tiny_store, tmp_path / "r", "optim.schedule.warmup=7"), quiet)
    assert not (tmp_path / "r").exists()


def test_learned_positions_that_count_on_from_bin_to_bin_are_refused(tiny_store, tmp_path, monkeypatch):
    store = Store(tiny_store)
    store.header["position_ids"] = "continuous"
    monkeypatch.setattr(setup, "Store", lambda path: store)
    with pytest.raises(InputError, match=r"model\.position=learned: .*continuous.*set model\.position=rope"):
        resolve(config(tiny_store, tmp_path / "r", "model.position=learned"))
    resolve(config(tiny_store, tmp_path / "r"))
    store.header["position_ids"] = "none"
    resolve(config(tiny_store, tmp_path / "r", "model.position=learned"))


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_made_ahead_change_nothing_and_a_run_may_change_their_number(tiny_store, tmp_path, prefetch):
    whole = fit(config(tiny_store, tmp_path / "a", "optim.schedule.kind=constant"), quiet)
    few = ["optim.schedule.kind=constant", f"data.prefetch={prefetch}"]
    fit(config(tiny_store, tmp_path / "b", *few, "train.steps=3"), quiet)
    fit(config(tiny_store, tmp_path / "b", "optim.schedule.kind=constant"), quiet)
    assert same(weights(tmp_path / "b", 6), weights(whole.path, 6))
    c, store = resolve(config(tiny_store, tmp_path / "c", *few))
    job = start(c, tmp_path / "c", store)
    before = set(threading.enumerate())
    job.loader.next_batch()
    assert len(set(threading.enumerate()) - before) == (prefetch > 0)


def test_cpu_never_probes_cuda(tiny_store, tmp_path, monkeypatch):  # case 52
    def probe():
        raise AssertionError("CUDA was probed")

    monkeypatch.setattr(torch.cuda, "is_available", probe)
    monkeypatch.setattr(torch.cuda, "device_count", probe)
    fit(config(tiny_store, tmp_path / "r", "train.steps=3"), quiet)


def test_a_store_of_another_tokenizer_is_refused(tiny_store, tmp_path):
    """From its weights and on resuming: the same ids would mean other text."""
    from seedbed.data.bpe import train_tokenizer

    texts = sentences(60, seed=4)
    other = train_tokenizer([text.upper() for text in texts], 300, tmp_path / "t", special_tokens=["<|x|>"])
    make_store([Text(str(i), text) for i, text in enumerate(texts)], other, tmp_path / "s", seq_len=32)
    fit(config(tiny_store, tmp_path / "a", "optim.schedule.kind=constant"), quiet)
    again = ["optim.schedule.kind=constant", "train.steps=8"]
    with pytest.raises(InputError, match="encoded by tokenizer"):
        fit(config(tmp_path / "s", tmp_path / "b", *again, f"train.init_from={tmp_path / 'a'}"), quiet)
    with pytest.raises(InputError, match="encoded by tokenizer"):
        fit(config(tmp_path / "s", tmp_path / "a", *again), quiet)


def test_cuda_that_is_not_there_is_refused(tiny_store, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"train\.device=cuda"):
        fit(config(tiny_store, tmp_path / "r", "train.device=cuda"), quiet)
    assert not (tmp_path / "r").exists()


def test_a_store_that_holds_nothing_out(tiny_store, tmp_path, with_page):
    from seedbed.data.store import Store

    documents = [Text(str(i), text, "train") for i, text in enumerate(sentences(60, seed=4))]
    make_store(documents, Store(tiny_store).tokenizer(), tmp_path / "s", seq_len=32)
    with pytest.raises(InputError, match="holds nothing out"):
        fit(config(tmp_path / "s", tmp_path / "r"), quiet)
    assert fit(config(tmp_path / "s", tmp_path / "r", "train.eval_every=-1"), quiet).summary.bits_per_byte is None


def test_the_page_of_a_run_from_weights_does_not_need_their_source(tiny_store, tmp_path, with_page):
    fit(config(tiny_store, tmp_path / "a"), quiet)
    b = [f"train.init_from={tmp_path / 'a'}", "optim.schedule.kind=constant"]
    run = fit(config(tiny_store, tmp_path / "b", *b, "train.steps=2"), quiet)
    shutil.rmtree(tmp_path / "a")
    assert fit(config(tiny_store, tmp_path / "b", *b, "train.steps=3"), quiet).summary.steps == 3
    assert "started from the weights of" in (run.path / "report.html").read_text()


def test_trackers_get_each_row_as_it_is_written(tiny_store, tmp_path):
    rows, more = [], []

    def spoil(row):
        rows.append(dict(row))
        row.clear()

    run = fit(config(tiny_store, tmp_path / "r", "train.gradients_every=3"), quiet, trackers=[spoil, more.append])
    assert rows == more == run.metrics
    assert {row["kind"] for row in rows} == {"train", "eval", "checkpoint", "gradients"}


@pytest.mark.parametrize("last", [3, 6])
def test_a_tracker_that_fails_ends_the_run_and_harms_nothing(last, tiny_store, tmp_path):
    told = ["train.checkpoint_every=2", "train.eval_every=-1", "train.async_checkpoints=false"]
    whole = fit(config(tiny_store, tmp_path / "whole", *told), quiet)

    def fail(row):
        if (row["kind"], row["step"]) == ("train", last):
            raise ConnectionError("the service is away")

    with pytest.raises(ConnectionError, match="away"):
        fit(config(tiny_store, tmp_path / "r", *told), quiet, trackers=[fail])
    assert {path.name for path in (tmp_path / "r" / "checkpoints").iterdir()} == {
        f"step_{step:08d}" for step in range(2, last, 2)
    }
    run = fit(config(tiny_store, tmp_path / "r", *told), quiet)
    assert same(weights(run.path, 6), weights(whole.path, 6))
    assert [row["loss"] for row in run.metrics if row["kind"] == "train"] == [
        row["loss"] for row in whole.metrics if row["kind"] == "train"
    ]


def test_tensorboard_gets_the_scalars(tiny_store, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(config(tiny_store, tmp_path / "r", "train.tensorboard=true"), quiet)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/lr", "eval/bits_per_byte"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
