"""Steps that go wrong: judged from numbers, passed over without a trace, or undone; the same whenever a run resumes."""

import json
import math
import shutil
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny import config, quiet, same, weights

from seedbed.api import fit
from seedbed.config import Config
from seedbed.config.train import GuardConfig
from seedbed.errors import GuardStop, InputError
from seedbed.train import loop
from seedbed.train.checkpoint import read_checkpoint
from seedbed.train.guard import Guard, judge
from seedbed.train.metrics import read_metrics
from seedbed.train.setup import go_back, resolve, start

SPIKES = GuardConfig(spike="skip", window=8)
CALM = [(2.0 + 0.01 * k, 1.0) for k in (-2, -1, -1, 0, 0, 1, 1, 2)]  # median 2.0, MAD 0.01


def finite(least: float, most: float):
    return st.floats(least, most, allow_nan=False)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("policy", ["stop", "skip", "rollback"])
def test_what_is_not_finite_goes_as_told_and_zero_gradients_always_stop(bad, policy):
    told = GuardConfig(nonfinite=policy)
    assert judge([], bad, 1.0, told).action == judge([], 1.0, bad, told).action == policy
    assert judge([], 1.0, 0.0, told).action == "stop"
    assert judge([], 1.0, 1.0, told).action == "update"


def test_a_spike_is_so_many_robust_deviations_above_the_median():
    line = 2.0 + 6 * 1.4826 * 0.01
    assert judge(CALM, line - 1e-6, 1.0, SPIKES).action == "update"
    verdict = judge(CALM, line + 1e-6, 1.0, SPIKES)
    assert verdict.action == "skip"
    assert "loss 2.089 lies 6.0 deviations above the median of the last 8 updates" in verdict.why
    assert judge(CALM, 0.1, 1.0, SPIKES).action == "update"  # far below is no spike
    assert judge(CALM[1:], 100.0, 1.0, SPIKES).action == "update"  # too few to tell
    assert judge(CALM, 100.0, 1.0, GuardConfig()).action == "update"  # not asked for


def test_norms_are_told_apart_by_factors():
    norms = [(2.0, norm) for norm in (0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0)]  # MAD of the logarithms: log 2
    line = math.exp(6 * 1.4826 * math.log(2))
    assert judge(norms, 2.0, 0.99 * line, SPIKES).action == "update"
    assert judge(norms, 2.0, 1.01 * line, SPIKES).why.startswith("gradient norm")


def test_losses_that_do_not_differ_have_a_spread_all_the_same():
    same_ones = [(2.0, 1.0)] * 8
    assert judge(same_ones, 2.0059, 1.0, SPIKES).action == "update"
    assert judge(same_ones, 2.0061, 1.0, SPIKES).action == "skip"


@given(st.lists(st.tuples(finite(1, 3), finite(0.5, 2)), min_size=8, max_size=8), st.integers(1, 3))
def test_a_few_spikes_among_the_updates_hide_no_spike(steps, spikes):
    """A mean and a standard deviation would be carried along by them."""
    history = steps[spikes:] + [(1e6, 1e6)] * spikes
    assert judge(history, 1e6, 1.0, SPIKES).action == "skip"
    assert judge(history, 1.0, 1e9, SPIKES).action == "skip"


def test_too_many_in_a_row_stop_the_run():
    guard, told = Guard(), GuardConfig(nonfinite="skip", max_skips=2)
    for loss, action in ((1, "update"), (math.nan, "skip"), (math.nan, "skip"), (1, "update"), (math.nan, "skip"),
                         (math.nan, "skip"), (math.nan, "stop")):  # fmt: skip
        verdict = guard.decide(loss, 1.0, told)
        assert verdict.action == action
    assert "2 batches in a row were skipped before" in verdict.why
    guard, told = Guard(), GuardConfig(nonfinite="rollback", max_rollbacks=2)
    actions = [guard.decide(loss, 1.0, told).action for loss in (math.nan, 1, 1, math.nan, 1, math.nan)]
    assert actions == ["rollback", "update", "update", "rollback", "update", "stop"]


def test_the_memory_is_of_updates_alone_and_goes_through_json():
    guard = Guard()
    for step in range(20):
        guard.decide(2.0 + 0.01 * (step % 5), 1.0, SPIKES)
    assert len(guard.history) == 8
    before = list(guard.history)
    assert guard.decide(50.0, 1.0, SPIKES).action == "skip"
    assert guard.history == before
    again = Guard(**json.loads(json.dumps(guard.state())))
    assert again.decide(50.0, 1.0, SPIKES) == guard.decide(50.0, 1.0, SPIKES)
    assert again.skips == guard.skips == 2
    off = Guard()
    off.decide(2.0, 1.0, GuardConfig())
    assert off.history == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.guard.window=64", "window is not read with spike=off"),
        ("train.guard.threshold=3.0", "threshold is not read with spike=off"),
        ("train.guard.max_skips=3", "max_skips is not read"),
        ("train.guard.max_rollbacks=3", "max_rollbacks is not read"),
        ("train.guard.nonfinite=off", "train.guard.nonfinite"),
    ],
)
def test_what_would_not_be_read_is_refused(override, said):
    with pytest.raises(InputError, match=said):
        Config.load(None, [override])
    with pytest.raises(InputError, match="no checkpoint to go back to with checkpoint_every=0"):
        Config.load(None, ["train.guard.spike=rollback", "train.checkpoint_every=0"])


def poison(monkeypatch, *ends: int, loss: float | None = None) -> None:
    """From now on the batches that end at these samples have a NaN in their gradient, or this loss."""
    real = loop.backward

    def poisoned(job, batch, n_targets):
        found, z = real(job, batch, n_targets)
        if job.loader.position in ends:
            if loss is not None:
                return loss, z
            with torch.no_grad():
                job.model.layers[1].mlp.down.weight.grad[0, 0] = math.nan
        return found, z

    monkeypatch.setattr(loop, "backward", poisoned)


class Killed(Exception):
    pass


def die_after(monkeypatch, steps: int) -> None:
    """This process makes so many steps, undone ones too."""
    real, made = loop.train_step, []

    def dying(job):
        if len(made) == steps:
            raise Killed
        made.append(job.step)
        return real(job)

    monkeypatch.setattr(loop, "train_step", dying)


def learned(run) -> list[dict]:
    rows = [row for row in read_metrics(run) if row["kind"] != "checkpoint"]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "seconds")} for row in rows]


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_skipped_batch_changes_nothing(tiny_store, tmp_path, monkeypatch, optimizer, capsys):
    poison(monkeypatch, 12)
    told = ["train.guard.nonfinite=skip", f"optim.name={optimizer}", "train.checkpoint_every=1"]
    run = fit(config(tiny_store, tmp_path / "r", *told, "train.keep_checkpoints=9", "train.eval_every=3"), quiet)
    assert same(weights(tmp_path / "r", 2), weights(tmp_path / "r", 3))
    states = [load_file(tmp_path / f"r/checkpoints/step_0000000{k}/optimizer.safetensors") for k in (2, 3, 4)]
    assert same(*states[:2])
    assert not same(*states[1:])
    (row,) = [row for row in run.metrics if row["kind"] == "guard"]
    assert (row["step"], row["action"], row["samples"], row["grad_norm"]) == (3, "skip", [8, 12], None)
    assert row["loss"] > 0
    assert [row["step"] for row in run.metrics if row["kind"] in ("train", "guard")] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in run.metrics if row["kind"] == "eval"] == [3, 6]
    tokens = {row["step"]: row["tokens"] for row in run.metrics if row["kind"] == "train"}
    assert run.summary.tokens == tokens[6] > tokens[4] > tokens[2]
    said = capsys.readouterr().err
    assert "step 3: loss " in said
    assert "gradient norm nan; skipped, not trained on samples 8 to 11" in said


def test_a_run_that_ends_with_a_skip_has_made_all_its_steps(tiny_store, tmp_path, monkeypatch):
    poison(monkeypatch, 24)
    run = fit(config(tiny_store, tmp_path / "r", "train.guard.nonfinite=skip"), quiet)
    assert run.summary.steps == 6
    assert same(weights(tmp_path / "r", 6), weights(tmp_path / "r", 6))


ROLLBACK = ["train.guard.nonfinite=rollback", "train.checkpoint_every=2", "train.keep_checkpoints=9"]


def test_a_rollback_goes_on_from_the_checkpoint_with_the_data_behind(tiny_store, tmp_path, monkeypatch, capsys):
    """As a run that was given the weights, moments and step of the checkpoint and the position of the bad batch."""
    plain = config(tiny_store, tmp_path / "plain", "train.checkpoint_every=2", "train.keep_checkpoints=9")
    fit(plain, quiet)
    chosen, store = resolve(plain)
    job = start(chosen, tmp_path / "plain", store, tmp_path / "plain/checkpoints/step_00000002")
    job.loader.position = 16
    expected = [loop.train_step(job)["loss"] for _ in range(4)]
    with monkeypatch.context() as patch:
        poison(patch, 16)
        run = fit(config(tiny_store, tmp_path / "r", *ROLLBACK), quiet)
    rows = [row for row in run.metrics if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["loss"] for row in rows[2:]] == expected
    assert same(weights(tmp_path / "r", 6), {k: v.detach() for k, v in job.model.state_dict().items()})
    (row,) = [row for row in run.metrics if row["kind"] == "guard"]
    assert (row["step"], row["bad_step"], row["action"], row["samples"]) == (3, 4, "rollback", [8, 16])
    assert "back to step 2, not trained on samples 8 to 15" in capsys.readouterr().err


@pytest.mark.parametrize("deaths", [(3,), (4,), (5,), (7, 4, 6)])
def test_a_run_with_skips_and_rollbacks_resumes_exactly(tiny_store, tmp_path, monkeypatch, deaths):
    """Killed before, between and after them; the memory of losses, too, is that of the checkpoint."""
    told = ["train.guard.nonfinite=rollback", "train.guard.spike=skip", "train.guard.window=8", "train.steps=14",
            "train.checkpoint_every=2", "train.keep_checkpoints=99"]  # fmt: skip

    def run(name: str, *deaths: int) -> None:
        for death in (*deaths, 99):
            with monkeypatch.context() as patch, suppress(Killed):
                poison(patch, 16)
                poison(patch, 56, loss=50.0)
                die_after(patch, death)
                fit(config(tiny_store, tmp_path / name, *told), quiet)

    run("whole")
    run("killed", *deaths)
    assert {row["action"] for row in read_metrics(tmp_path / "whole") if row["kind"] == "guard"} == {"skip", "rollback"}
    assert learned(tmp_path / "whole") == learned(tmp_path / "killed")
    assert same(weights(tmp_path / "whole", 14), weights(tmp_path / "killed", 14))


def test_rollbacks_end(tiny_store, tmp_path, monkeypatch):
    poison(monkeypatch, *range(16, 999, 4))
    with pytest.raises(GuardStop, match="step 3: .*the run went back 3 times before; stopped before the update"):
        fit(config(tiny_store, tmp_path / "r", *ROLLBACK, "train.guard.max_rollbacks=3"), quiet)
    assert [row["samples"] for row in read_metrics(tmp_path / "r") if row["kind"] == "guard"] == [[8, 24]]


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(tiny_store, tmp_path, monkeypatch):
    poison(monkeypatch, 8)
    with pytest.raises(GuardStop, match="no whole checkpoint to go back to"):
        fit(config(tiny_store, tmp_path / "r", *ROLLBACK), quiet)


def test_a_stopped_run_may_go_on_with_another_policy(tiny_store, tmp_path, monkeypatch):
    poison(monkeypatch, 16)
    every = "train.checkpoint_every=2"
    with pytest.raises(GuardStop, match=r"step 4: .*train\.guard can skip such batches"):
        fit(config(tiny_store, tmp_path / "r", every), quiet)
    run = fit(config(tiny_store, tmp_path / "r", every, "train.guard.nonfinite=skip"), quiet)
    assert run.summary.steps == 6


def test_a_checkpoint_without_a_guard_is_one_of_an_earlier_release(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    folder = tmp_path / "r/checkpoints/step_00000006"
    state = json.loads((folder / "state.json").read_text())
    assert state.pop("guard") == {"history": [], "skips": 0, "rollbacks": 0}
    shutil.copytree(folder, tmp_path / "old")
    (tmp_path / "old" / "state.json").write_text(json.dumps(state))
    assert Guard(**read_checkpoint(tmp_path / "old").guard) == Guard()


def test_going_back_keeps_the_position_and_the_count(tiny_store, tmp_path):
    chosen = config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.steps=4")
    fit(chosen, quiet)
    chosen, store = resolve(chosen)
    job = start(chosen, tmp_path / "r", store, tmp_path / "r/checkpoints/step_00000004")
    job.guard.rollbacks, job.loader.position, job.step = 3, 64, 9
    assert go_back(job) == 16
    assert (job.step, job.loader.position, job.guard.rollbacks) == (4, 64, 3)
