"""A study carried out: shared folders of runs, what fails, what a study's folder may be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import studies

from seedbed.config.reader import parse_file
from seedbed.errors import InputError
from seedbed.study.claim import claimed
from seedbed.study.outcome import FILE, Outcome, read_outcome, write_outcome
from seedbed.study.run import STUDY, Progress, known_outcomes, read_study, run, study_folder
from seedbed.study.work import Task

GRID: dict[str, Any] = {"tune": {"grid": {"optim.lr": [1e-3, 2e-3, 4e-3, 8e-3, 16e-3]}, "seed": 9}}


class Worker:
    """Stands for training: losses by a formula, and which runs were made, in order."""

    def __init__(self, runs: Path):
        self.runs, self.made = runs, list[str]()

    def __call__(self, task: Task) -> None:
        self.made.append(task.key)
        lr, gamma = task.config["optim"]["lr"], task.config["init"]["gamma"]
        write_outcome(Path(task.folder), Outcome(task.key, "finished", nats_per_token=abs(lr - 4e-3) + gamma))

    def carry_out(self, plan: Any) -> Progress:
        return run(plan, self.runs, studies.in_this_process(self), print, 1, lambda *_: None)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "runs")


def test_each_run_is_made_once_and_the_tuned_ones_after_their_choice(tiny_store: Path, worker: Worker) -> None:
    plan = studies.plan(tiny_store, seeds=[0, 1], shares=[0.5, 1.0], **GRID)
    state = worker.carry_out(plan)
    assert len(set(worker.made)) == len(worker.made) == len(state.outcomes) == 2 * 4 + 2 * 2 * 2
    assert (state.failed, state.running) == ({}, {})
    assert known_outcomes(plan, worker.runs) == state.outcomes
    assert worker.carry_out(plan).outcomes == state.outcomes
    assert len(worker.made) == 16


def test_studies_share_the_runs_that_are_equal(tiny_store: Path, worker: Worker) -> None:
    worker.carry_out(studies.plan(tiny_store))
    first = set(worker.made)
    state = worker.carry_out(studies.plan(tiny_store, name="other", axes={"gamma": {"init.gamma": [0.5, 0.75, 1.0]}}))
    assert len(worker.made) == 3
    assert first < state.outcomes.keys()


def test_runs_that_become_known_on_the_way_are_not_made_again(tiny_store: Path, worker: Worker) -> None:
    """A wider grid brings another tuning run; what follows the same choice was made before."""
    plan = studies.plan(tiny_store, **GRID)
    worker.carry_out(plan)
    before = len(worker.made)
    lost = next(one for one in plan.tuning(plan.cells[0], {}) if one.tuned["optim.lr"] == 2e-3)
    (worker.runs / lost.key / FILE).unlink()
    state = worker.carry_out(plan)
    assert worker.made[before:] == [lost.key]
    assert len(state.outcomes) == before


def test_a_failed_run_is_a_row_with_its_reason_and_is_tried_again(tiny_store: Path, worker: Worker) -> None:
    plan = studies.plan(tiny_store, shares=[0.5, 1.0])
    trunk, branch = plan.comparison(plan.cells[0], {})

    def engine(next_task: Any, ended: Any) -> None:
        while (task := next_task()) is not None:
            if task.key == trunk.key:
                ended(task, "killed by signal 9")
            else:
                worker(task)
                ended(task, None)

    state = run(plan, worker.runs, engine, print, 1, lambda *_: None)
    assert state.failed == {trunk.key: "killed by signal 9"}
    assert branch.key not in state.outcomes  # it waits for its trunk
    assert len(state.outcomes) == 2
    outcome = known_outcomes(plan, worker.runs)[trunk.key]
    assert (outcome.status, outcome.reason) == ("failed", "killed by signal 9")
    assert len(worker.carry_out(plan).outcomes) == 4
    assert worker.made[-2:] == [trunk.key, branch.key]


def test_a_process_that_came_to_grief_after_its_outcome_has_not_failed(tiny_store: Path, worker: Worker) -> None:
    plan = studies.plan(tiny_store)

    def engine(next_task: Any, ended: Any) -> None:
        while (task := next_task()) is not None:
            worker(task)
            ended(task, "killed by signal 11")

    state = run(plan, worker.runs, engine, print, 1, lambda *_: None)
    assert (len(state.outcomes), state.failed) == (2, {})
    assert {outcome.status for outcome in known_outcomes(plan, worker.runs).values()} == {"finished"}


def test_a_run_that_failed_here_while_another_study_does_it_is_not_written_down_as_failed(
    tiny_store: Path, worker: Worker
) -> None:
    plan = studies.plan(tiny_store)

    def engine(next_task: Any, ended: Any) -> None:
        while (task := next_task()) is not None:
            with claimed(task.folder):
                ended(task, "killed")

    state = run(plan, worker.runs, engine, print, 1, lambda *_: None)
    assert list(state.failed.values()) == ["killed", "killed"]
    assert known_outcomes(plan, worker.runs) == {}


def test_what_cannot_be_observed_any_more_is_told_and_fails_nothing(tiny_store: Path, worker: Worker) -> None:
    worker.carry_out(studies.plan(tiny_store))
    kept, gone = worker.made
    (worker.runs / kept / "checkpoints" / "step_00000020").mkdir(parents=True)
    asked = studies.plan(tiny_store, observe=["residual", "sink"])
    state = worker.carry_out(asked)
    assert worker.made[2:] == [kept]  # the other has no checkpoint, and is taken as it is
    assert gone in state.outcomes and gone not in state.failed
    assert asked.unobserved(state.outcomes | {kept: replace(state.outcomes[gone], key=kept)}) == [
        "2 finished runs lack what is observed (residual, sink): `seedbed study run` looks at it, but where the "
        "checkpoints are gone"
    ]
    seen = {key: replace(state.outcomes[gone], after={"residual": {}, "sink": {}}) for key in (kept, gone)}
    assert asked.unobserved(seen) == []


def test_changes_are_told_with_what_runs_and_what_ended(tiny_store: Path, worker: Worker) -> None:
    told: list[tuple[int, int, str | None]] = []

    def tell(state: Progress, ended: Any) -> None:
        told.append((len(state.running), len(state.outcomes), ended and ended.cell.name))

    run(studies.plan(tiny_store), worker.runs, studies.in_this_process(worker), print, 1, tell)
    assert told == [(1, 0, None), (0, 1, "0.5"), (1, 1, None), (0, 2, "1.0")]


def test_an_outcome_reads_back_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    outcome = Outcome(
        "k", "diverged", reason="x", curve=[(1, 2.5), (2, float("inf"))], gradient_norms=[(1, 2.0, float("nan"))],
        before={"sink": {"mean": 0.1}}, weights=[(3, [{"a": None}])],
    )  # fmt: skip
    assert read_outcome(tmp_path) is None
    write_outcome(tmp_path, outcome)
    assert str(read_outcome(tmp_path)) == str(outcome)
    (tmp_path / FILE).write_text('{"key": "k"')
    with pytest.raises(InputError, match=r"outcome\.json: damaged .* remove the folder, and the run is made again"):
        read_outcome(tmp_path)


def test_all_damaged_outcomes_are_told_at_once(tiny_store: Path, tmp_path: Path) -> None:
    plan = studies.plan(tiny_store)
    keys = sorted(trial.key for trial in plan.trials({}))
    for key in keys:
        (tmp_path / key).mkdir()
        (tmp_path / key / FILE).write_text('{"key": "k"}')
    told = rf"{keys[0]}/outcome\.json: damaged \(status: Field required\); remove .*; 1 more are damaged: {keys[1]}$"
    with pytest.raises(InputError, match=told):
        known_outcomes(plan, tmp_path)
    for number in range(10):
        (tmp_path / f"z{number}").mkdir()
        (tmp_path / f"z{number}" / FILE).write_text("")
    with pytest.raises(InputError, match=r"11 more are damaged: .*, z6 and 3 more$"):
        run(plan, tmp_path, studies.in_this_process(print), print, 1, print)


def test_a_study_keeps_its_specification_in_its_folder(tmp_path: Path) -> None:
    spec, folder = studies.spec(None), tmp_path / "study"
    with study_folder(folder, spec):
        assert read_study(folder) == spec
        with pytest.raises(InputError, match="in use by process"), study_folder(folder, spec):
            pass
    changed = studies.spec(None, seeds=[1, 2])
    with study_folder(folder, changed):
        pass
    assert read_study(folder) == changed
    assert isinstance(parse_file(folder / STUDY), dict)


def test_a_folder_that_is_another_studys_or_something_else_stays_as_it_is(tmp_path: Path) -> None:
    spec, folder = studies.spec(None), tmp_path / "study"
    with study_folder(folder, spec):
        pass
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    for name, told in (
        ("study", "holds another study, tiny; choose another folder for other"),
        ("file", "is a file; name a folder for the study"),
        ("full", r"holds other files \(letter.txt\); name a new folder for the study"),
    ):
        with pytest.raises(InputError, match=told), study_folder(tmp_path / name, studies.spec(None, name="other")):
            pass
    assert read_study(folder) == spec
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    with pytest.raises(InputError, match=r"no study \(study\.yaml is missing\)"):
        read_study(tmp_path / "full")
    (folder / STUDY).write_text("[1]")
    with pytest.raises(InputError, match="name"):
        read_study(folder)
