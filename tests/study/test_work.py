"""One run of a study: branches, what an outcome says, and where work goes on after it was interrupted."""

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import killing
import pytest
import studies
import tiny
from safetensors.torch import load_file

from seedbed.api import fit
from seedbed.config import Config
from seedbed.errors import GuardStop, InputError, SignalStop
from seedbed.study import work as working
from seedbed.study.outcome import Outcome, read_outcome, settled, write_outcome
from seedbed.study.run import known_outcomes, run
from seedbed.study.trial import Trial
from seedbed.study.work import Task, gathered, work
from seedbed.train import loop
from seedbed.train.metrics import METRICS, read_metrics

train = partial(fit, tell=tiny.quiet, page=False)
PAIR: dict[str, Any] = {
    "axes": {"optim": {"optim.name": ["adamw", "muon"]}}, "compare": {"axis": "optim", "baseline": "adamw"},
    "shares": [0.5, 1.0], "set": {"optim.schedule.warmup": 0.1, "model.attention.gate": "elementwise"},
    "observe": ["residual", "masking", "sink", "weights", "token_losses"],
}  # fmt: skip


def task(
    trial: Trial, folder: Path, trunk: Path | None = None, observe: tuple[str, ...] = (), train: Any = train
) -> Task:
    branch = None if trunk is None or trial.trunk is None else (str(trunk), trial.trunk[1])
    return Task(trial.key, trial.cell.name, str(folder), trial.config.dump(), observe, None, branch, 1, train)


def outcome_of(folder: Path) -> Outcome:
    outcome = read_outcome(folder)
    assert outcome is not None
    return outcome


def updates(folder: Path) -> list[tuple[Any, ...]]:
    """All that the steps of a run were, without their time."""
    rows = [row for row in read_metrics(folder) if row["kind"] == "train"]
    return [(row["step"], row["loss"], row["lr"], row["grad_norm"], row["tokens"]) for row in rows]


@pytest.fixture(scope="module")
def done(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, float], Trial]]:
    """A study of both optimizers at two shares, carried out; its folder of runs, and its runs by arm and share."""
    runs = tmp_path_factory.mktemp("study") / "runs"
    plan = studies.plan(tiny_store, **PAIR)
    run(plan, runs, studies.in_this_process(work), train, 1, lambda *_: None)
    assert len(known_outcomes(plan, runs)) == 4
    return runs, {(one.cell.arm, one.share): one for one in plan.trials({})}


def test_a_study_that_looks_at_more_observes_a_finished_run_and_trains_nothing(done: Any, tmp_path: Path) -> None:
    runs, trials = done
    trial, folder = trials["adamw", 1.0], tmp_path / "run"
    copytree(runs / trial.key, folder)
    whole = outcome_of(folder)
    less = replace(whole, before={}, after={"residual": "kept as it is"})
    write_outcome(folder, less)
    assert settled(folder, ["residual"]) == less
    assert settled(folder, PAIR["observe"]) is None
    work(task(trial, folder, observe=tuple(PAIR["observe"]), train=never))
    found = outcome_of(folder)
    assert found.after == whole.after | less.after
    assert found.before == {name: value for name, value in whole.before.items() if name != "residual"}
    assert replace(found, before={}, after={}) == replace(whole, before={}, after={})
    work(task(trial, folder, observe=("residual",), train=never))
    assert outcome_of(folder) == found


def test_what_is_not_observed_is_told_and_a_finished_run_stays(tiny_store: Path, tmp_path: Path) -> None:
    plan = studies.plan(tiny_store, observe=["residual"])
    trial = plan.trials({})[0]
    write_outcome(tmp_path / trial.key, finished := Outcome(trial.key, "finished", nats_per_token=1.0))
    (tmp_path / trial.key / "checkpoints" / "step_00000020").mkdir(parents=True)

    def engine(next_task: Any, ended: Any) -> None:
        while (task := next_task()) is not None:
            ended(task, "its checkpoint is damaged")

    state = run(plan, tmp_path, engine, train, 1, lambda *_: None)
    assert state.failed[trial.key] == "its checkpoint is damaged"
    assert outcome_of(tmp_path / trial.key) == finished


def never(_config: Config) -> None:
    raise AssertionError("trained")


@pytest.mark.parametrize("arm", ["adamw", "muon"])
def test_a_branch_is_to_the_last_bit_the_run_from_its_first_step(done: Any, arm: str, tmp_path: Path) -> None:
    """Every update, every weight, the optimizer's state, what is observed, and the evaluations that both make."""
    runs, trials = done
    half, whole = trials[arm, 0.5], trials[arm, 1.0]
    assert half.trunk == (whole.key, 8)
    assert half.config.train.steps == 10
    branch, scratch = runs / half.key, tmp_path / "scratch"
    work(task(half, scratch, observe=tuple(PAIR["observe"])))
    ours, theirs = outcome_of(branch), outcome_of(scratch)
    assert (ours.branched, theirs.branched) == (whole.key, None)
    assert updates(branch) == updates(scratch)
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = Path("checkpoints", "step_00000010", name)
        assert tiny.same(load_file(branch / last), load_file(scratch / last)), name
    for field in ("nats_per_token", "bits_per_byte", "steps", "tokens", "before", "after", "status"):
        assert getattr(ours, field) == getattr(theirs, field), field
    both = dict(ours.curve).keys() & dict(theirs.curve).keys()
    assert len(both) >= 2
    assert all(dict(ours.curve)[tokens] == dict(theirs.curve)[tokens] for tokens in both)
    assert ours.nats_per_token == ours.curve[-1][1] == theirs.curve[-1][1]


def test_the_arms_differ_and_so_do_their_shares(done: Any) -> None:
    runs, trials = done
    assert len({outcome_of(runs / one.key).nats_per_token for one in trials.values()}) == 4


def test_an_outcome_says_what_the_metrics_say(done: Any) -> None:
    """20 steps, four evaluations; medians and maxima of the norms between them."""
    runs, trials = done
    folder = runs / trials["muon", 1.0].key
    outcome, steps = outcome_of(folder), updates(folder)
    assert [tokens for tokens, _ in outcome.curve] == [steps[step - 1][4] for step in (5, 10, 15, 20)]
    assert outcome.tokens == steps[-1][4]
    norms = [step[3] for step in steps]
    assert [largest for _, _, largest in outcome.gradient_norms] == [max(norms[at : at + 5]) for at in (0, 5, 10, 15)]
    assert [middle for _, middle, _ in outcome.gradient_norms] == [
        sorted(norms[at : at + 5])[2] for at in (0, 5, 10, 15)
    ]
    assert 0 < outcome.train_s < outcome.wall_s
    assert outcome.peak_mb > 50
    assert outcome.versions["torch"]


def test_losses_of_tokens_pair_between_models(done: Any) -> None:
    runs, trials = done
    losses = [outcome_of(runs / one.key).after["token_losses"] for one in trials.values()]
    assert len({tuple(map(len, documents)) for documents in losses}) == 1
    assert all(len(documents) > 16 for documents in losses)  # several documents a sequence
    assert losses[0] != losses[1]
    before = [outcome_of(runs / trials[arm, 1.0].key).before["token_losses"] for arm in ("adamw", "muon")]
    assert before[0] == before[1]  # the same weights before the first step


def write_metrics(folder: Path, *rows: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_evaluations_at_ragged_steps_and_skipped_ones(tmp_path: Path) -> None:
    """A skipped step has no row and no tokens; an evaluation there is at the tokens so far."""
    norms = {1: 3.0, 2: 1.0, 4: 5.0, 5: 7.0, 6: 2.0}
    updates = [
        {"kind": "train", "step": step, "tokens": 10 * number, "grad_norm": norm, "seconds": 0.5 * number}
        for number, (step, norm) in enumerate(norms.items(), start=1)
    ]
    evals = [{"kind": "eval", "step": step, "nats_per_token": 9.0 - step, "bits_per_byte": 1.0} for step in (3, 4, 6)]
    write_metrics(tmp_path / "run", *sorted(updates + evals, key=lambda row: row["step"]))
    found = gathered(tmp_path / "run")
    assert found["curve"] == [(20, 6.0), (30, 5.0), (50, 3.0)]
    assert found["gradient_norms"] == [(20, 2.0, 3.0), (30, 5.0, 5.0), (50, 4.5, 7.0)]
    assert (found["nats_per_token"], found["steps"], found["tokens"], found["train_s"]) == (3.0, 6, 50, 2.5)


def test_a_run_that_never_made_a_step(tmp_path: Path) -> None:
    found = gathered(tmp_path)
    assert (found["nats_per_token"], found["steps"], found["curve"], found["gradient_norms"]) == (None, 0, [], [])


def test_a_run_that_diverges_has_its_reason_and_no_result(tiny_store: Path, tmp_path: Path) -> None:
    """Asked again, it is not repeated."""
    one = studies.trial(tiny_store, set={"optim.lr": 1e6, "optim.schedule.warmup": 0.5})
    work(task(one, tmp_path / "run", observe=("residual",)))
    outcome = outcome_of(tmp_path / "run")
    assert outcome.status == "diverged"
    assert outcome.reason is not None
    assert outcome.reason.startswith("step ")
    assert ";" not in outcome.reason  # no advice for runs of their own
    assert (outcome.nats_per_token, outcome.bits_per_byte, outcome.after) == (None, None, {})
    assert outcome.steps < 20
    work(task(one, tmp_path / "run", train=None))
    assert outcome_of(tmp_path / "run") == outcome


def test_the_last_evaluation_before_divergence_is_no_result(tmp_path: Path, done: Any) -> None:
    """It stays in the curve."""
    _, trials = done

    def diverge(config: Config) -> None:
        folder = Path(str(config.run.dir))
        evaluated = {"kind": "eval", "step": 1, "nats_per_token": 2.0, "bits_per_byte": 1.0}
        write_metrics(folder, {"kind": "train", "step": 1, "tokens": 9, "grad_norm": 1.0, "seconds": 1.0}, evaluated)
        raise GuardStop("step 2: loss nan, gradient norm nan")

    work(task(trials["adamw", 1.0], tmp_path / "run", observe=("residual",), train=diverge))
    outcome = outcome_of(tmp_path / "run")
    assert (outcome.status, outcome.nats_per_token, outcome.curve) == ("diverged", None, [(9, 2.0)])
    assert outcome.reason == "step 2: loss nan, gradient norm nan"


def timeless(outcome: Outcome) -> dict[str, Any]:
    return {key: of for key, of in vars(outcome).items() if key not in ("train_s", "wall_s", "peak_mb")}


def test_a_study_interrupted_after_each_run_comes_to_the_same(done: Any, tiny_store: Path, tmp_path: Path) -> None:
    runs, _ = done
    plan = studies.plan(tiny_store, **PAIR)

    def tell(_state: Any, ended: Trial | None) -> None:
        if ended is not None:
            raise KeyboardInterrupt

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            run(plan, tmp_path / "runs", studies.in_this_process(work), train, 1, tell)
    again = run(studies.plan(tiny_store, **PAIR), tmp_path / "runs", studies.in_this_process(work), train, 1, tell)
    assert {key: timeless(one) for key, one in again.outcomes.items()} == {
        key: timeless(one) for key, one in known_outcomes(plan, runs).items()
    }


@pytest.mark.parametrize("phase", ["training", "observing", "writing"])
def test_work_goes_on_where_it_was_interrupted(
    done: Any, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, trials = done
    whole = trials["muon", 1.0]
    expected = outcome_of(runs / whole.key)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    if phase == "training":
        with pytest.raises(SignalStop):
            work(task(whole, tmp_path / "run", train=lambda config: _stop_after(config, 9)))
    else:
        with monkeypatch.context() as patched:
            patched.setattr(working, "observe" if phase == "observing" else "write_outcome", interrupted)
            with pytest.raises(KeyboardInterrupt):
                work(task(whole, tmp_path / "run", observe=tuple(PAIR["observe"])))
    assert read_outcome(tmp_path / "run") is None
    work(task(whole, tmp_path / "run", observe=tuple(PAIR["observe"])))
    assert timeless(outcome_of(tmp_path / "run")) == timeless(expected)


def _stop_after(config: Config, step: int) -> None:
    """Train and be stopped by a signal that comes within a step."""
    made = loop.train_step

    def counted(job: Any) -> dict[str, Any]:
        if job.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return made(job)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "train_step", counted)
        train(config)


def test_a_damaged_checkpoint_of_the_trunk_is_not_branched_off(done: Any, tmp_path: Path) -> None:
    """The run is made from its first step, and comes to the same."""
    runs, trials = done
    half, whole = trials["adamw", 0.5], trials["adamw", 1.0]
    trunk = tmp_path / "trunk"
    copytree(runs / whole.key, trunk)
    weights = trunk / "checkpoints" / "step_00000008" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"oops")
    work(task(half, tmp_path / "run", trunk=trunk))
    outcome = outcome_of(tmp_path / "run")
    assert outcome.branched is None
    assert outcome.nats_per_token == outcome_of(runs / half.key).nats_per_token


@pytest.mark.slow
@pytest.mark.parametrize("arm", [(0.5, "adamw"), (1.0, "muon")])
def test_a_kill_before_any_change_to_the_disk_loses_nothing(done: Any, tmp_path: Path, arm: tuple[float, str]) -> None:
    """SIGKILL before each fourth change, a branch and a trunk; the next call comes to the same outcome."""
    runs, trials = done
    one = trials[arm[1], arm[0]]
    trunk = None if one.trunk is None else runs / one.trunk[0]
    expected = timeless(outcome_of(runs / one.key))
    for number in range(0, 10_000, 4):
        folder = tmp_path / str(number) / one.key
        folder.parent.mkdir()
        doing = task(one, folder, trunk, tuple(PAIR["observe"]))
        killed = killing.killed_at(number, lambda doing=doing: work(doing))
        work(doing)
        assert timeless(outcome_of(folder)) == expected, number
        if not killed:
            return
    raise AssertionError("never came to its end")


def test_a_key_knows_the_weights_that_a_run_starts_from_and_not_where_they_lie(
    done: Any, tiny_store: Path, tmp_path: Path
) -> None:
    runs, trials = done
    gate = {"model.attention.gate": "elementwise"}

    def key(folder: Path | None) -> str:
        start = {} if folder is None else {"train.init_from": str(folder)}
        return studies.trial(tiny_store, set=gate | start).key

    adamw, muon = runs / trials["adamw", 1.0].key, runs / trials["muon", 1.0].key
    copytree(adamw, tmp_path / "copy")
    assert key(adamw) == key(tmp_path / "copy")
    assert len({key(None), key(adamw), key(muon)}) == 3
    with pytest.raises(InputError, match="nowhere"):
        key(tmp_path / "nowhere")


def test_a_key_knows_what_weights_and_cohorts_a_run_is_drawn_after(done: Any, tiny_store: Path, tmp_path: Path) -> None:
    """By their content; by their path where nothing is there."""
    runs, trials = done

    def key(**options: str) -> str:
        return studies.trial(tiny_store, set={f"init.{name}": value for name, value in options.items()}, **RATES).key

    for arm in ("adamw", "muon"):
        copytree(runs / trials[arm, 1.0].key, tmp_path / arm)
    copytree(tmp_path / "adamw", tmp_path / "copy")
    names = ("adamw", "muon", "nowhere", "elsewhere")
    assert len({key(law="reuse", checkpoint=str(tmp_path / name)) for name in names}) == len(names)
    assert key(law="reuse", checkpoint=str(tmp_path / "adamw")) == key(law="reuse", checkpoint=str(tmp_path / "copy"))
    for name, text in (("a.json", "{}"), ("b.json", "{}"), ("c.json", "[]")):
        (tmp_path / name).write_text(text)
    a, b, c = (key(law="magnitude", cohort=str(tmp_path / name)) for name in ("a.json", "b.json", "c.json"))
    assert a == b != c


RATES: dict[str, Any] = {"axes": {"lr": {"optim.lr": [1e-3, 2e-3]}}, "compare": {"axis": "lr", "baseline": "0.001"}}
