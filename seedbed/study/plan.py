"""From a study to its runs: which there are, what each is, and which can be begun. Nothing is written here."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from seedbed.errors import InputError
from seedbed.study.axes import label_of
from seedbed.study.maker import Maker
from seedbed.study.outcome import Outcome, unobserved
from seedbed.study.spec import Spec
from seedbed.study.trial import Cell, Stage, Trial, fingerprints
from seedbed.study.tune import Point, Walk, walk


@dataclass(frozen=True)
class _Chosen:
    walk: Walk
    tuned: dict[str, float] | None
    """None where nothing can be chosen yet, or ever: ``problem`` says why."""
    problem: str | None = None


class Plan:
    """The runs of a study, as far as the outcomes so far decide them.

    Raises InputError where an override names no field, a budget or a schedule does not fit, or arms differ in what they
    may not.
    """

    def __init__(self, spec: Spec):
        self.spec = spec
        self._maker = Maker(spec)
        self._made: dict[Any, Trial] = {}
        self._arms_differ()
        for cell in self.cells:  # whatever may be run is tried before anything is
            self.chosen(cell, {})
            self.comparison(cell, self.middle)

    @cached_property
    def cells(self) -> list[Cell]:
        axes = [[(axis, level) for level in levels] for axis, levels in self.spec.axes.items()]
        return [Cell(levels, size) for size in self.spec.sizes for levels in product(*axes)]

    def trials(self, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """All runs that are known by now: tuning as far as it has come, the comparison of cells that have chosen."""
        found = []
        for cell in self.cells:
            found += self.tuning(cell, outcomes)
            chosen = self.chosen(cell, outcomes)
            if chosen.tuned is not None:
                found += self.comparison(cell, chosen.tuned)
        return found

    def ready(self, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """Runs without an outcome that wait for no other one; the longest first, so that none is left for the end.

        A branch waits for its trunk, also for one that failed and is to be tried again.
        """
        todo = [trial for trial in self.trials(outcomes) if trial.key not in outcomes]
        ended = {key for key, outcome in outcomes.items() if outcome.status != "failed"}
        free = [trial for trial in todo if trial.trunk is None or trial.trunk[0] in ended]
        return sorted(free, key=lambda trial: -trial.flops)

    def tuning(self, cell: Cell, outcomes: Mapping[str, Outcome]) -> list[Trial]:
        """The tuning runs of a cell, done and to be done next."""
        if self.spec.tune is None:
            return []
        done = [point for point in product(*map(range, self._shape)) if self._tuning(cell, point).key in outcomes]
        return [self._tuning(cell, point) for point in dict.fromkeys([*done, *self.chosen(cell, outcomes).walk.todo])]

    def chosen(self, cell: Cell, outcomes: Mapping[str, Outcome]) -> _Chosen:
        """What a cell has chosen on the tuning seed."""
        if self.spec.tune is None:
            return _Chosen(Walk([], None, []), {})
        losses: dict[Point, float] = {}
        for point in product(*map(range, self._shape)):
            outcome = outcomes.get(self._tuning(cell, point).key)
            if outcome is None:
                continue
            if outcome.status == "failed":
                why = f"{cell.name}: a tuning run failed: {outcome.reason}"
                return _Chosen(Walk([], None, []), None, why)
            loss = outcome.nats_per_token if outcome.status == "finished" else None
            losses[point] = math.inf if loss is None else loss
        stands = walk(self._shape, losses)
        if stands.todo:
            return _Chosen(stands, None)
        if stands.best is None:
            lowest = ", ".join(f"{path}={label_of(values[0])}" for path, values in self.spec.tune.grid.items())
            return _Chosen(stands, None, f"{cell.name}: every run down to {lowest} diverged; lower the grid")
        values = self._values(stands.best)
        if stands.edges:
            path = self._paths[stands.edges[0]]
            grid = self.spec.tune.grid[path]
            why = (
                f"{cell.name}: the best {path}, {label_of(values[path])}, is at the edge of its grid "
                f"({label_of(grid[0])} to {label_of(grid[-1])}); widen it: what was run stays"
            )
            return _Chosen(stands, None, why)
        return _Chosen(stands, values)

    def problems(self, outcomes: Mapping[str, Outcome]) -> list[str]:
        """Why cells have no result, a line each."""
        found = [self.chosen(cell, outcomes).problem for cell in self.cells]
        return [problem for problem in found if problem is not None]

    def rounded(self) -> list[str]:
        """Shares and budgets that whole parts of runs from which others branch make another number, a line each."""
        found: dict[str, str] = {}
        for size in self.spec.sizes:
            whole, *branches = self.comparison(next(cell for cell in self.cells if cell.size == size), self.middle)[
                : len(self.spec.shares)
            ]
            for trial in branches:
                taken = trial.tokens / whole.tokens
                if abs(taken - trial.share) > 0.01 * trial.share:
                    told = f"share {trial.share:g} is {taken:.4g} of the budget"
                    found.setdefault(told, f"{told} at {size}: shares are whole twentieths of a run")
        return list(found.values())

    def unobserved(self, outcomes: Mapping[str, Outcome]) -> list[str]:
        """What finished runs of the comparison lack of what is observed, a line where there is something."""
        trials = [trial for trial in self.trials(outcomes) if trial.stage == "compare" and trial.key in outcomes]
        lacking = {trial.key: unobserved(outcomes[trial.key], self.looks(trial)) for trial in trials}
        looks = dict.fromkeys(look for found in lacking.values() for look in found)
        runs = sum(map(bool, lacking.values()))
        if not runs:
            return []
        return [
            f"{runs} finished {'run lacks' if runs == 1 else 'runs lack'} what is observed ({', '.join(looks)}): "
            "`seedbed study run` looks at it, but where the checkpoints are gone"
        ]

    def looks(self, trial: Trial) -> tuple[str, ...]:
        """What is observed of a run; nothing of those that only choose."""
        if trial.stage == "tune":
            return ()
        asked = () if self.evaluation is None or trial.share < 1 else (self.evaluation,)
        return (*self.spec.observe, *asked)

    @cached_property
    def evaluation(self) -> str | None:
        """The name among the looks of what runs of the whole budget are asked."""
        return None if self.spec.evaluate is None else self.spec.evaluate.look

    def comparison(self, cell: Cell, tuned: Mapping[str, float]) -> list[Trial]:
        """The runs of a cell that are compared: the whole budget of each seed, then what branches off it."""
        shares = sorted(self.spec.shares, reverse=True)
        return [self._trial(cell, "compare", share, seed, tuned) for seed in self.spec.seeds for share in shares]

    def fingerprint(self, trial: Trial) -> str:
        """Of what a run trains on."""
        return self._maker.store(trial.config).split("train").fingerprint

    @property
    def _paths(self) -> list[str]:
        return [] if self.spec.tune is None else list(self.spec.tune.grid)

    @property
    def _shape(self) -> list[int]:
        return [] if self.spec.tune is None else [len(values) for values in self.spec.tune.grid.values()]

    @property
    def middle(self) -> dict[str, float]:
        """Of the grid; it stands for what is not chosen yet."""
        return self._values(tuple(length // 2 for length in self._shape))

    @property
    def grid_size(self) -> int:
        """Tuning runs of a cell if the whole grid is walked."""
        return 0 if self.spec.tune is None else math.prod(self._shape)

    def _values(self, point: Point) -> dict[str, float]:
        grid = {} if self.spec.tune is None else self.spec.tune.grid
        return {path: values[index] for (path, values), index in zip(grid.items(), point, strict=True)}

    def _tuning(self, cell: Cell, point: Point) -> Trial:
        assert self.spec.tune is not None
        return self._trial(cell, "tune", 1.0, self.spec.tune.seed, self._values(point))

    def _trial(self, cell: Cell, stage: Stage, share: float, seed: int, tuned: Mapping[str, float]) -> Trial:
        made = (cell, share, seed, tuple(tuned.items()))
        if made not in self._made:
            self._made[made] = self._maker.make(cell, stage, share, seed, tuned)
        return self._made[made]

    def _arms_differ(self) -> None:
        """Raise InputError where two cells are the same, or where arms of a size differ in what the study does not say:
        the data that they read, or the tokens that their budget comes to. Whole steps make no difference.
        """
        first: dict[str, Trial] = {}
        seen: dict[str, Cell] = {}
        for cell in self.cells:
            trial = self._trial(cell, "compare", 1.0, self.spec.seeds[0], self.middle)
            if (same := seen.setdefault(trial.key, cell)) != cell:
                raise InputError(
                    f"study {self.spec.name}: {same.name} and {cell.name} are the same runs; leave one out, or give "
                    "it the override that it misses"
                )
            other = first.setdefault(cell.size, trial)
            for what, of in (("data", self._data), ("budget", self._budget)):
                if of(trial) != of(other) and what not in self.spec.differ:
                    raise InputError(
                        f"study {self.spec.name}: {cell.name} and {other.cell.name} differ in their {what} "
                        f"({of(trial)} and {of(other)}); make them equal, or say so with differ: [{what}]"
                    )

    def _data(self, trial: Trial) -> str:
        prints = "".join(fingerprints(self._maker.store(trial.config)).values())
        return hashlib.sha256(prints.encode()).hexdigest()[:12]

    def _budget(self, trial: Trial) -> str:
        rule = self.spec.budget
        if rule.tokens_per_parameter is not None:  # each arm has its own number of parameters
            return f"{rule.tokens_per_parameter * trial.parameters:,.0f} tokens"
        return f"{rule.tokens or rule.flops:.4g}"
