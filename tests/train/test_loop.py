"""Training: one update whatever the accumulation, exact resumption, stops that lose nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY, sentences

from seedbed.api import fit, load
from seedbed.config import Config
from seedbed.errors import GuardStop, InputError, SignalStop
from seedbed.train import loop
from seedbed.train.metrics import read_metrics
from seedbed.train.setup import resolve, start


def config(store: Path, run: Path, *overrides: str) -> Config:
    return Config.load(None, [*TINY, f"data.store={store}", f"run.dir={run}", *overrides])


@pytest.fixture(autouse=True)
def page(request, monkeypatch):
    """Figures take longer than the tiny trainings: only tests that ask for `with_page` draw them."""
    if "with_page" not in request.fixturenames:
        monkeypatch.setattr("seedbed.api.write_page", lambda *args, **kwargs: None)


@pytest.fixture
def with_page() -> None:
    """Asked for by tests that look at report.html."""


def quiet(_message: str) -> None:
    pass


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step_{step:08d}" / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def learned(run: Path) -> list[dict]:
    """The metrics without what a clock made."""
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "seconds")} for row in read_metrics(run)]


class Killed(Exception):
    pass


def kill_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From now on a training dies, without any clean-up of its own, once it has made so many steps."""
    real = loop.train_step

    def dying(job, forward):
        if job.step == step:
            raise Killed
        return real(job, forward)

    monkeypatch.setattr(loop, "train_step", dying)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_an_interrupted_run_equals_an_uninterrupted_one_bit_for_bit(tiny_store, tmp_path, monkeypatch, optimizer):
    common = [f"optim.name={optimizer}", "train.checkpoint_every=2", "train.eval_every=2", "train.keep_checkpoints=9"]
    fit(config(tiny_store, tmp_path / "a", *common), quiet)
    for death in (3, 5):  # once, then again further on
        with monkeypatch.context() as patch:
            kill_after(patch, death)
            with pytest.raises(Killed):
                fit(config(tiny_store, tmp_path / "b", *common), quiet)
        assert read_metrics(tmp_path / "b")[-1]["step"] >= death - 1
    fit(config(tiny_store, tmp_path / "b", *common), quiet)
    assert same(weights(tmp_path / "a", 6), weights(tmp_path / "b", 6))
    assert learned(tmp_path / "a") == learned(tmp_path / "b")
    optimizer_state = [
        load_file(tmp_path / run / "checkpoints/step_00000006/optimizer.safetensors") for run in ("a", "b")
    ]
    assert same(*optimizer_state)


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
    text = load(tmp_path / "r").continue_text("the small", 8, temperature=0.0)
    assert text == load(tmp_path / "r").continue_text("the small", 8, temperature=1e-4, seed=5)  # case 45: greedy


def test_an_extended_run_goes_on(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant"), quiet)
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant", "train.steps=8"), quiet)
    fit(config(tiny_store, tmp_path / "long", "optim.schedule.kind=constant", "train.steps=8"), quiet)
    assert same(weights(tmp_path / "r", 8), weights(tmp_path / "long", 8))
    with pytest.raises(InputError, match="has made 8 steps"):
        fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant", "train.steps=7"), quiet)


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
        job, _ = start(c, tmp_path / str(micro), store)
        job.model.double()
        job.optimizers = loop_optimizers(job)
        losses.append([loop.train_step(job, job.model)["loss"] for _ in range(20)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)
    assert losses[0][-1] < losses[0][0] - 0.1


def loop_optimizers(job):
    from seedbed.facts.table import parameter_facts
    from seedbed.optim.groups import build_optimizers

    return build_optimizers(job.model, parameter_facts(job.model), job.config.optim)


def test_an_infinite_weight_stops_the_run_before_the_step(tiny_store, tmp_path, monkeypatch):  # case 25
    real = loop.train_step

    def poisoned(job, forward):
        if job.step == 4:
            with torch.no_grad():
                job.model.layers[0].mlp.down.weight[0, 0] = torch.inf
        return real(job, forward)

    monkeypatch.setattr(loop, "train_step", poisoned)
    with pytest.raises(GuardStop, match=r"step 5: loss nan.*stopped before the update"):
        fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.keep_checkpoints=1"), quiet)
    assert all(torch.isfinite(w).all() for w in weights(tmp_path / "r", 4).values())
    assert read_metrics(tmp_path / "r")[-1]["step"] == 4


def test_weights_that_are_not_finite_are_never_saved(tiny_store, tmp_path, monkeypatch):
    real = loop.train_step

    def poisoned(job, forward):
        row = real(job, forward)
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
    job, _ = start(c, tmp_path / "r", store)
    batch = job.loader.next_batch()
    job.loader.next_batch = lambda: batch._replace(targets=torch.full_like(batch.targets, -100))
    before = job.model.embed.weight.clone()
    with pytest.raises(GuardStop, match="no token of the batch is supervised"):
        loop.train_step(job, job.model)
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


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tiny_store, tmp_path, monkeypatch, signum):  # case 40
    real = loop.train_step

    def interrupted(job, forward):
        if job.step == 3:
            os.kill(os.getpid(), signum)
        return real(job, forward)

    fit(config(tiny_store, tmp_path / "a"), quiet)
    before = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        with pytest.raises(SignalStop, match="after step 4") as stop:
            fit(config(tiny_store, tmp_path / "b"), quiet)
    assert stop.value.signum == signum
    assert signal.getsignal(signum) is before
    fit(config(tiny_store, tmp_path / "b"), quiet)
    assert same(weights(tmp_path / "a", 6), weights(tmp_path / "b", 6))


def test_resuming_refuses_another_configuration_with_the_difference(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    saved = (tmp_path / "r" / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"optim\.lr is 0\.002 there, 0\.1 here"):
        fit(config(tiny_store, tmp_path / "r", "optim.lr=0.1"), quiet)
    assert (tmp_path / "r" / "config.yaml").read_bytes() == saved
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"not a run and not empty \(thesis\.tex"):  # case 42
        fit(config(tiny_store, tmp_path / "other"), quiet)
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_run_and_its_store_are_moved_and_go_on(tiny_store, tmp_path):
    shutil.copytree(tiny_store, tmp_path / "store")
    constant = "optim.schedule.kind=constant"
    fit(config(tmp_path / "store", tmp_path / "r", constant), quiet)
    shutil.move(tmp_path / "r", tmp_path / "s")
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    said = []
    run = fit(config(tmp_path / "elsewhere", tmp_path / "s", constant, "train.steps=7"), said.append)
    assert run.summary.steps == 7
    assert "train.steps was 6: from here on the schedule is that of 7 steps" in said


def test_a_store_with_other_content_is_refused_on_resuming(tiny_store, tmp_path):
    from seedbed.data.sources import Document
    from seedbed.data.store import Store, prepare

    constant = "optim.schedule.kind=constant"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    documents = [Document(str(i), text) for i, text in enumerate(sentences(60, seed=5))]
    prepare(documents, Store(tiny_store).tokenizer(), tmp_path / "other", seq_len=32)
    with pytest.raises(InputError, match="data position"):
        fit(config(tmp_path / "other", tmp_path / "r", constant, "train.steps=8"), quiet)


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b"5\n", b"\xff\n", b'{"step": "x"}\n', b"[]\n"])
def test_damaged_metrics_do_not_stop_a_run(tiny_store, tmp_path, damage):
    constant = "optim.schedule.kind=constant"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    with open(tmp_path / "r" / "metrics.jsonl", "ab") as file:
        file.write(damage)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl:8: not a row"):
        run = fit(config(tiny_store, tmp_path / "r", constant, "train.steps=7"), quiet)
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6, 7]


def test_a_dead_model_stops_the_run(tiny_store, tmp_path):
    with pytest.raises(GuardStop, match=r"step 2: .*(exactly 0|gradient norm nan|loss nan)"):
        fit(config(tiny_store, tmp_path / "r", "optim.lr=1e6", "optim.schedule.kind=constant"), quiet)


def test_init_from_takes_weights_only(tiny_store, tmp_path, with_page):
    fit(config(tiny_store, tmp_path / "a"), quiet)
    before = weights(tmp_path / "a", 6)
    c = config(tiny_store, tmp_path / "b", f"train.init_from={tmp_path / 'a'}", "optim.name=adamw", "run.seed=5")
    c, store = resolve(c)
    job, _ = start(c, tmp_path / "b", store)
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


def test_two_processes_do_not_share_a_run(tiny_store, tmp_path):
    from seedbed.files.lock import folder_lock

    program = (
        "import sys\nfrom seedbed import Config, fit\nfrom seedbed.errors import InputError\n"
        "try:\n    fit(Config.load(None, sys.argv[1:]))\nexcept InputError as error:\n    print(error)\n"
    )
    with folder_lock(tmp_path / "r"):
        overrides = [*TINY, f"data.store={tiny_store}", f"run.dir={tmp_path / 'r'}"]
        out = subprocess.run([sys.executable, "-c", program, *overrides], capture_output=True, text=True, check=True)
    assert f"in use by process {os.getpid()}" in out.stdout
    assert not (tmp_path / "r").exists()  # nothing came of either


def test_cpu_never_probes_cuda(tiny_store, tmp_path, monkeypatch):  # case 52
    def probe():
        raise AssertionError("CUDA was probed")

    monkeypatch.setattr(torch.cuda, "is_available", probe)
    monkeypatch.setattr(torch.cuda, "device_count", probe)
    fit(config(tiny_store, tmp_path / "r", "train.steps=3"), quiet)


def test_cuda_that_is_not_there_is_refused(tiny_store, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"train\.device=cuda"):
        fit(config(tiny_store, tmp_path / "r", "train.device=cuda"), quiet)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("wrong", ["train.init_from=nowhere", "init.law=normal init.std=-1.0"])
def test_a_start_that_is_refused_claims_no_folder(tiny_store, tmp_path, wrong):
    with pytest.raises(InputError):
        fit(config(tiny_store, tmp_path / "r", *wrong.split()), quiet)
    assert not (tmp_path / "r").exists()


def test_only_damaged_checkpoints_stop_the_run_instead_of_starting_over(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant"), quiet)
    rows = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    (tmp_path / "r" / "checkpoints" / "step_00000006" / "state.json").unlink()
    more = ["optim.schedule.kind=constant", "train.steps=8"]
    with pytest.raises(InputError, match=r"step_00000006: passed over: state.json is missing; put one back"):
        fit(config(tiny_store, tmp_path / "r", *more), quiet)
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == rows
    assert "steps: 6" in (tmp_path / "r" / "config.yaml").read_text()
    assert fit(config(tiny_store, tmp_path / "r", *more), quiet, fresh=True).summary.steps == 8


def test_fresh_removes_a_run_and_nothing_else(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    run = fit(config(tiny_store, tmp_path / "r", "optim.lr=1e-4"), quiet, fresh=True)
    assert run.config.optim.lr == 1e-4
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    again = [f"train.init_from={tmp_path / 'r'}", "train.steps=4"]
    assert fit(config(tiny_store, tmp_path / "r", *again), quiet, fresh=True).summary.steps == 4  # from itself
    with pytest.raises(InputError, match="nowhere"):
        fit(config(tiny_store, tmp_path / "r", "train.init_from=nowhere"), quiet, fresh=True)
    assert (tmp_path / "r" / "checkpoints" / "step_00000004").is_dir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not a run"):
        fit(config(tiny_store, tmp_path / "other"), quiet, fresh=True)
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_store_that_holds_nothing_out(tiny_store, tmp_path, with_page):
    from seedbed.data.sources import Document
    from seedbed.data.store import Store, prepare

    documents = [Document(str(i), text, "train") for i, text in enumerate(sentences(60, seed=4))]
    prepare(documents, Store(tiny_store).tokenizer(), tmp_path / "s", seq_len=32)
    with pytest.raises(InputError, match="holds nothing out"):
        fit(config(tmp_path / "s", tmp_path / "r"), quiet)
    assert fit(config(tmp_path / "s", tmp_path / "r", "train.eval_every=-1"), quiet).summary.bits_per_byte is None


def test_a_damaged_checkpoint_given_by_its_path_is_refused(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=3"), quiet)
    newest = tmp_path / "r" / "checkpoints" / "step_00000006"
    weights_file = newest / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"model\.safetensors has .* bytes instead of"):
        load(newest)
    with pytest.warns(UserWarning, match="step_00000006: passed over"):
        load(tmp_path / "r")


def test_the_page_of_a_run_from_weights_does_not_need_their_source(tiny_store, tmp_path, with_page):
    fit(config(tiny_store, tmp_path / "a"), quiet)
    b = [f"train.init_from={tmp_path / 'a'}", "optim.schedule.kind=constant"]
    run = fit(config(tiny_store, tmp_path / "b", *b, "train.steps=2"), quiet)
    shutil.rmtree(tmp_path / "a")
    assert fit(config(tiny_store, tmp_path / "b", *b, "train.steps=3"), quiet).summary.steps == 3
    assert "started from the weights of" in (run.path / "report.html").read_text()


def test_tensorboard_gets_the_scalars(tiny_store, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(config(tiny_store, tmp_path / "r", "train.tensorboard=true"), quiet)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/lr", "eval/bits_per_byte"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
