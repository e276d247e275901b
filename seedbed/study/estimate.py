"""What a study takes: runs, tokens and operations from its plan, time from what was measured."""

import platform
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from seedbed.data.store import Store
from seedbed.measure.table import Rows
from seedbed.parallel.world import World, pick_device
from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan
from seedbed.study.trial import Cell, Trial
from seedbed.train.loop import train_step
from seedbed.train.setup import start

SMALL = {"cpu": 2e10, "cuda": 2e13}
"""Operations of a step up to which one is tried: about two seconds of one core, or of one GPU (choice)."""
TRIED, TRIED_S = 3, 3.0
"""Steps of a size that are timed behind a first one, and the seconds after which no further one is begun."""


@dataclass(frozen=True)
class CellCost:
    """An arm at a size: a run of its whole budget."""

    size: str
    arm: str
    parameters: int
    non_embedding: int
    steps: int
    tokens: int
    flops: float

    @property
    def tokens_per_parameter(self) -> float:
        return self.tokens / self.parameters

    @property
    def tokens_per_non_embedding(self) -> float:
        return self.tokens / self.non_embedding


@dataclass(frozen=True)
class Work:
    """Some runs together."""

    runs: int
    tokens: int
    """That are trained on; what a branch shares with its run counts there."""
    flops: float
    """Of forward and backward passes."""
    seconds: float | None
    """Of one run after another; None where a size has no rate."""


@dataclass(frozen=True)
class Speed:
    """How fast runs of a size go."""

    size: str
    seconds_per_flop: float | None
    basis: str
    """What the rate was measured on; why there is none."""


@dataclass(frozen=True)
class Estimate:
    cells: Rows[CellCost]
    speeds: Rows[Speed]
    done: Work
    """Runs that have ended; no seconds."""
    first: Work
    """Tuning runs that can begin now."""
    tuning: Work
    """Tuning runs that are left at most: all of the grid."""
    comparison: Work
    """Runs of the comparison that are left."""

    @property
    def least(self) -> Work:
        return _sum(self.first, self.comparison)

    @property
    def most(self) -> Work:
        return _sum(self.tuning, self.comparison)


def estimate(plan: Plan, outcomes: Mapping[str, Outcome], speeds: Rows[Speed]) -> Estimate:
    """What is left of ``plan`` after ``outcomes``, runs that failed included, since they are tried again. Cells that
    have not chosen yet are counted as if they chose the middle of the grid.
    """
    outcomes = {key: outcome for key, outcome in outcomes.items() if outcome.status != "failed"}
    first: list[Trial] = []
    grid: list[Trial] = []
    comparison: list[Trial] = []
    for cell in plan.cells:
        chosen = plan.chosen(cell, outcomes)
        tuning = plan.tuning(cell, outcomes)
        first += [trial for trial in tuning if trial.key not in outcomes]
        if chosen.walk.todo:
            left = plan.grid_size - sum(trial.key in outcomes for trial in tuning)
            grid += [first[-1]] * left
        if chosen.problem is None:
            runs = plan.comparison(cell, plan.middle if chosen.tuned is None else chosen.tuned)
            comparison += [trial for trial in runs if chosen.tuned is None or trial.key not in outcomes]
    ended = [trial for trial in plan.trials(outcomes) if trial.key in outcomes]
    rates = {speed.size: speed.seconds_per_flop for speed in speeds}
    return Estimate(
        Rows(cell_costs(plan)), speeds, _work(ended, {}), _work(first, rates), _work(grid, rates),
        _work(comparison, rates),
    )  # fmt: skip


def cell_costs(plan: Plan) -> list[CellCost]:
    """Of each cell the run of its whole budget."""
    found = []
    for cell in plan.cells:
        trial = whole(plan, cell)
        steps = trial.config.train.steps
        sizes = trial.parameters, trial.non_embedding, steps, trial.tokens, trial.flops
        found.append(CellCost(cell.size, cell.arm, *sizes))
    return found


def whole(plan: Plan, cell: Cell) -> Trial:
    """A run of the whole budget of a cell, with the middle of the grid."""
    return plan.comparison(cell, plan.middle)[0]


def speeds(plan: Plan, outcomes: Mapping[str, Outcome], threads: int, *, try_steps: bool) -> Rows[Speed]:
    """How fast runs of each size go: as those with ``threads`` did that have ended here, else, with ``try_steps``, as a
    few steps do.

    Nothing is written. The number of threads is set for the steps that are tried, and set back.
    """
    found, before = [], torch.get_num_threads()
    trials = plan.trials(outcomes)
    for size in plan.spec.sizes:
        ended = [(trial, outcomes[trial.key]) for trial in trials if trial.cell.size == size and trial.key in outcomes]
        speed = _ended_here(size, ended, threads)
        if speed is None:
            cell = next(cell for cell in plan.cells if cell.size == size)
            torch.set_num_threads(threads)
            try:
                speed = _tried(size, whole(plan, cell), threads) if try_steps else Speed(size, None, "not timed")
            finally:
                torch.set_num_threads(before)
        found.append(speed)
    return Rows(found)


def _ended_here(size: str, ended: Iterable[tuple[Trial, Outcome]], threads: int) -> Speed | None:
    """By runs of this size that finished on a machine like this one, evaluation and measures included.

    Branches are left out: of their time too much is not in steps, and a trunk is there for each of them.
    """
    rates = [
        max(outcome.wall_s, outcome.train_s) / trial.flops  # of a run that was interrupted wall_s has the last part
        for trial, outcome in ended
        if trial.trunk is None and outcome.status == "finished" and outcome.threads == threads
        and outcome.versions.get("platform") == platform.platform()
    ]  # fmt: skip
    if not rates:
        return None
    runs = "1 run that" if len(rates) == 1 else f"{len(rates)} runs that"
    told = f"{runs} finished on a machine like this with {_threads(threads)}, by operations"
    return Speed(size, statistics.median(rates), told)


def _threads(number: int) -> str:
    return f"{number} {'thread' if number == 1 else 'threads'}"


def _tried(size: str, trial: Trial, threads: int) -> Speed:
    config = trial.config
    device = pick_device(config.train.device)
    a_step = trial.flops / config.train.steps
    if a_step > SMALL[device.type]:
        told = f"a step takes {a_step:.1e} operations, more than the {SMALL[device.type]:.0e} that are tried here"
        return Speed(size, None, f"not estimated: {told}; no run of this size has finished here")
    assert config.data.store is not None
    job = start(config, Path("unused"), Store(config.data.store), world=World(device))
    train_step(job)  # compilers, allocators and threads start in it
    began, seconds = time.perf_counter(), []
    while len(seconds) < TRIED and time.perf_counter() - began < TRIED_S:
        here = time.perf_counter()
        train_step(job)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - here)
    where = "the GPU" if device.type == "cuda" else _threads(threads)
    basis = f"{len(seconds)} steps of {trial.cell.arm} tried on {where}, without evaluation and checkpoints"
    return Speed(size, statistics.median(seconds) / a_step, basis)


def _work(trials: list[Trial], rates: Mapping[str, float | None]) -> Work:
    times = [None if (rate := rates.get(trial.cell.size)) is None else rate * trial.flops for trial in trials]
    known = [seconds for seconds in times if seconds is not None]
    tokens = sum(trial.tokens // trial.config.train.steps * trial.own_steps for trial in trials)
    seconds = sum(known) if len(known) == len(times) else None
    return Work(len(trials), tokens, sum(trial.flops for trial in trials), seconds)


def _sum(a: Work, b: Work) -> Work:
    seconds = None if a.seconds is None or b.seconds is None else a.seconds + b.seconds
    return Work(a.runs + b.runs, a.tokens + b.tokens, a.flops + b.flops, seconds)
