"""Carry a study out: what is done stays, what was interrupted goes on, what failed is told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from seedbed.config.reader import write_yaml
from seedbed.errors import InputError
from seedbed.files.atomic import write_atomic
from seedbed.files.lock import folder_lock
from seedbed.study.claim import is_claimed
from seedbed.study.outcome import Outcome, damage, read_outcome, settled, unobserved, write_outcome
from seedbed.study.plan import Plan, Trial
from seedbed.study.spec import Spec, load_spec
from seedbed.study.work import Task, Train

STUDY = "study.yaml"

NextTask = Callable[[], Task | None]
"""The next task that can be begun; None where none can now. Asked again whenever a task has ended."""
Ended = Callable[[Task, str | None], None]
"""Told of each task that has ended; with a reason where it left no outcome."""
Engine = Callable[[NextTask, Ended], None]
"""Does tasks, several at a time, until none is running and none can be begun. Raises SignalStop when a signal ended
it, after its tasks have saved."""


@dataclass
class Progress:
    """How far a study is."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons by key of runs that ended without an outcome now; the next call tries them again."""
    running: dict[str, Trial] = field(default_factory=dict)


def known_outcomes(plan: Plan, runs: Path) -> dict[str, Outcome]:
    """Outcomes of the plan's runs in the folder ``runs``. Those of failed runs count as such. Raises InputError where
    one is damaged, with all that are."""
    outcomes: dict[str, Outcome] = {}
    try:
        while found := [
            outcome
            for trial in plan.trials(outcomes)
            if trial.key not in outcomes and (outcome := read_outcome(runs / trial.key)) is not None
        ]:
            outcomes |= {outcome.key: outcome for outcome in found}
    except InputError as error:
        raise InputError(damage(runs) or str(error)) from None
    return outcomes


def run(
    plan: Plan, runs: Path, engine: Engine, train: Train, threads: int, tell: Callable[[Progress, Trial | None], None]
) -> Progress:
    """Do what is left of ``plan`` in ``runs``, a folder of run folders by key that studies may share.

    ``tell`` hears of every change, with the trial that ended. Raises what the engine raises.
    """
    known_outcomes(plan, runs)  # what is damaged is told before anything is run
    runs.mkdir(parents=True, exist_ok=True)
    state = Progress()

    def free() -> list[Trial]:
        told = state.outcomes | {key: Outcome(key, "failed", reason) for key, reason in state.failed.items()}
        return [trial for trial in plan.ready(told) if trial.key not in state.running]

    def next_task() -> Task | None:
        while made := {
            trial.key: found for trial in free() if (found := _had(runs / trial.key, plan.looks(trial))) is not None
        }:  # before, or by another study meanwhile
            state.outcomes |= made
        trials = free()
        mine = next((trial for trial in trials if not is_claimed(runs / trial.key)), None)
        if mine is None and trials and not state.running:
            mine = trials[0]  # another study's are all that is left: wait for one of them
        if mine is None:
            return None
        state.running[mine.key] = mine
        tell(state, None)
        return _task(mine, plan, runs, threads, train)

    def ended(task: Task, reason: str | None) -> None:
        trial, folder = state.running.pop(task.key), runs / task.key
        outcome = settled(folder, task.looks)
        if outcome is None:
            state.failed[task.key] = reason or "ended without an outcome"
            # one that has ended well could not be observed; one that another study is doing now has an outcome soon
            if not is_claimed(folder) and settled(folder) is None:
                write_outcome(folder, Outcome(task.key, "failed", state.failed[task.key]))
        else:
            state.outcomes[task.key] = outcome
        tell(state, trial)

    engine(next_task, ended)
    return state


def _task(trial: Trial, plan: Plan, runs: Path, threads: int, train: Train) -> Task:
    return Task(
        key=trial.key, name=trial.name, folder=str(runs / trial.key), config=trial.config.dump(),
        looks=plan.looks(trial), evaluate=None if plan.spec.evaluate is None else plan.spec.evaluate.model_dump(),
        trunk=None if trial.trunk is None else (str(runs / trial.trunk[0]), trial.trunk[1]),
        threads=threads, train=train,
    )  # fmt: skip


def _had(folder: Path, looks: tuple[str, ...]) -> Outcome | None:
    """The outcome in ``folder`` if nothing is left to do there: what its run lacks of ``looks`` cannot be seen any more
    once its checkpoints are gone."""
    outcome = settled(folder)
    if outcome is None or not unobserved(outcome, looks) or any((folder / "checkpoints").glob("step_*")):
        return settled(folder, looks)
    return outcome


@contextmanager
def study_folder(folder: Path, spec: Spec) -> Iterator[None]:
    """Hold the study's ``folder`` for this process and keep the specification there.

    Raises InputError where it holds another study, or something else; of the same study another version takes the old
    one's place, since runs are told apart by what they are.
    """
    _check(folder, spec)
    with folder_lock(folder):
        _check(folder, spec)
        write_atomic(folder / STUDY, write_yaml(spec.dump()))
        yield


def read_study(folder: Path) -> Spec:
    """The study whose folder this is. Raises InputError where it is none."""
    path = folder / STUDY
    if not path.is_file():
        raise InputError(f"{folder}: no study ({STUDY} is missing); name the folder that `seedbed study run` wrote")
    return load_spec(path)


def _check(folder: Path, spec: Spec) -> None:
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name a folder for the study")
    if (folder / STUDY).is_file():
        other = read_study(folder).name
        if other != spec.name:
            raise InputError(f"{folder}: holds another study, {other}; choose another folder for {spec.name}")
    elif folder.is_dir() and (names := {path.name for path in folder.iterdir()} - {".lock", "runs"}):
        raise InputError(f"{folder}: holds other files ({min(names)}); name a new folder for the study")
