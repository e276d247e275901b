"""What a study takes: runs, tokens and operations from its plan, time from what was measured."""

import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    """In steps."""
    around_s: float | None
    """Of a run beside its steps: start-up, evaluation, checkpoints, measures. None where no run has finished here."""
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
    from_start: int
    """So many of them are of smaller shares and cannot branch off: the finished run kept no checkpoint there."""

    @property
    def least(self) -> Work:
        return _sum(self.first, self.comparison)

    @property
    def most(self) -> Work:
        return _sum(self.tuning, self.comparison)


def estimate(plan: Plan, outcomes: Mapping[str, Outcome], speeds: Rows[Speed], runs: Path) -> Estimate:
    """What is left of ``plan`` after ``outcomes``, runs that failed included, since they are tried again. Cells that
    have not chosen yet are counted as if they chose the middle of the grid. ``runs`` is the folder that the runs lie in
    by key: of what is kept there it depends which runs can branch off.
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
            planned = plan.comparison(cell, plan.middle if chosen.tuned is None else chosen.tuned)
            comparison += [trial for trial in planned if chosen.tuned is None or trial.key not in outcomes]
    ended = [trial for trial in plan.trials(outcomes) if trial.key in outcomes]
    alone = [_from_start(trial) for trial in comparison if _must_begin_anew(trial, outcomes, runs)]
    comparison = alone + [trial for trial in comparison if not _must_begin_anew(trial, outcomes, runs)]
    rates = {speed.size: speed for speed in speeds}
    return Estimate(
        Rows(cell_costs(plan)), speeds, _work(ended, {}), _work(first, rates), _work(grid, rates),
        _work(comparison, rates), len(alone),
    )  # fmt: skip


def _must_begin_anew(trial: Trial, outcomes: Mapping[str, Outcome], runs: Path) -> bool:
    """Whether the run that ``trial`` would branch off has finished without a checkpoint at that step."""
    if trial.trunk is None or trial.trunk[0] not in outcomes:
        return False
    trunk, step = trial.trunk
    return not (runs / trunk / "checkpoints" / f"step_{step:08d}").is_dir()


def _from_start(trial: Trial) -> Trial:
    return replace(trial, trunk=None, flops=trial.flops / trial.own_steps * trial.config.train.steps)


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
    here = [(trial, outcomes[trial.key]) for trial in trials if trial.key in outcomes]
    here = [(trial, outcome) for trial, outcome in here if _like_this(trial, outcome, threads)]
    around = [outcome.wall_s - outcome.train_s for _, outcome in here]
    for size in plan.spec.sizes:
        speed = _ended_here(size, [one for one in here if one[0].cell.size == size], threads)
        if speed is None:
            cell = next(cell for cell in plan.cells if cell.size == size)
            torch.set_num_threads(threads)
            try:
                tried = whole(plan, cell)
                speed = _tried(size, tried, threads, around) if try_steps else Speed(size, None, None, "not timed")
            finally:
                torch.set_num_threads(before)
        found.append(speed)
    return Rows(found)


def _like_this(trial: Trial, outcome: Outcome, threads: int) -> bool:
    """Whether a run says how long others take here: one that finished on a machine like this one, in one go.

    Branches are left out, since their seconds in steps are partly those of the run that they branched off. Of a run
    that was interrupted the process that ended it says less than its steps took.
    """
    return (
        outcome.status == "finished" and outcome.branched is None and outcome.threads == threads
        and outcome.versions.get("platform") == platform.platform() and outcome.wall_s >= outcome.train_s
        and trial.trunk is None
    )  # fmt: skip


def _ended_here(size: str, ended: list[tuple[Trial, Outcome]], threads: int) -> Speed | None:
    """By runs of this size: their steps by operations, and what they took beside them."""
    if not ended:
        return None
    rate = statistics.median(outcome.train_s / trial.flops for trial, outcome in ended)
    around = statistics.median(outcome.wall_s - outcome.train_s for _, outcome in ended)
    runs = "1 run that" if len(ended) == 1 else f"{len(ended)} runs that"
    told = f"{runs} finished on a machine like this with {_threads(threads)}, by operations"
    return Speed(size, rate, around, f"{told}, and {around:.1f} s beside the steps")


def _threads(number: int) -> str:
    return f"{number} {'thread' if number == 1 else 'threads'}"


def _tried(size: str, trial: Trial, threads: int, around: list[float]) -> Speed:
    """By some steps; ``around`` has the seconds beside their steps of runs of other sizes that finished here."""
    config = trial.config
    device = pick_device(config.train.device)
    a_step = trial.flops / config.train.steps
    if a_step > SMALL[device.type]:
        told = f"a step takes {a_step:.1e} operations, more than the {SMALL[device.type]:.0e} that are tried here"
        return Speed(size, None, None, f"not estimated: {told}; no run of this size has finished here")
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
    beside = statistics.median(around) if around else None
    told = "without start-up, evaluation and checkpoints"
    if beside is not None:
        told = f"and {beside:.1f} s beside them as runs of other sizes took"
    basis = f"{len(seconds)} steps of {trial.cell.arm} tried on {where}, {told}"
    return Speed(size, statistics.median(seconds) / a_step, beside, basis)


def _work(trials: list[Trial], rates: Mapping[str, Speed]) -> Work:
    times = [_seconds(trial, rates.get(trial.cell.size)) for trial in trials]
    known = [seconds for seconds in times if seconds is not None]
    tokens = sum(trial.tokens // trial.config.train.steps * trial.own_steps for trial in trials)
    seconds = sum(known) if len(known) == len(times) else None
    return Work(len(trials), tokens, sum(trial.flops for trial in trials), seconds)


def _seconds(trial: Trial, speed: Speed | None) -> float | None:
    if speed is None or speed.seconds_per_flop is None:
        return None
    return speed.seconds_per_flop * trial.flops + (speed.around_s or 0.0)


def _sum(a: Work, b: Work) -> Work:
    seconds = None if a.seconds is None or b.seconds is None else a.seconds + b.seconds
    return Work(a.runs + b.runs, a.tokens + b.tokens, a.flops + b.flops, seconds)
