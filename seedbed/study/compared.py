"""The finished runs of a comparison, by arm, size, share and seed, and which of them pair."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from seedbed.study.outcome import Outcome
from seedbed.study.plan import Cell, Plan, Trial


@dataclass(frozen=True)
class Done:
    """A finished run with a loss."""

    trial: Trial
    outcome: Outcome
    loss: float


SAME = 0.01

BySeed = Mapping[int, Done]


@dataclass(frozen=True)
class Against:
    """A level of the compared axis and the baseline, all else alike."""

    others: str
    level: str
    cell: Cell
    base: Cell


class Compared:
    """What of ``plan`` is finished, in the order of the plan."""

    def __init__(self, plan: Plan, outcomes: Mapping[str, Outcome]):
        self.plan = plan
        self.shares = sorted(plan.spec.shares, reverse=True)
        self.trials: dict[Cell, list[Trial]] = {}
        """The runs of each cell that has chosen."""
        self._done: dict[tuple[Cell, float], dict[int, Done]] = {}
        for cell in plan.cells:
            chosen = plan.chosen(cell, outcomes).tuned
            self.trials[cell] = [] if chosen is None else plan.comparison(cell, chosen)
            for trial in self.trials[cell]:
                outcome = outcomes.get(trial.key)
                loss = None if outcome is None else final_loss(outcome)
                if outcome is not None and loss is not None:
                    self._done.setdefault((cell, trial.share), {})[trial.seed] = Done(trial, outcome, loss)

    @cached_property
    def sizes(self) -> list[str]:
        return list(self.plan.spec.sizes)

    def done(self, cell: Cell, share: float = 1.0) -> BySeed:
        return self._done.get((cell, share), {})

    def each(self, *shares: float) -> Iterator[tuple[Cell, float, BySeed]]:
        """Cells that have finished runs; of all shares, or of those that are named."""
        for share in shares or self.shares:
            for cell in self.plan.cells:
                if self.done(cell, share):
                    yield cell, share, self.done(cell, share)

    def against(self) -> list[Against]:
        """What is compared with what, by size, the other axes and level; a cell without runs included."""
        spec, found = self.plan.spec.compare, []
        for cell in self.plan.cells:
            level = dict(cell.levels)[spec.axis]
            if level == spec.baseline:
                continue
            base = Cell(
                tuple((axis, spec.baseline if axis == spec.axis else of) for axis, of in cell.levels), cell.size
            )
            found.append(Against(without(cell, spec.axis), named(spec.axis, level), cell, base))
        return found

    def pairs(self, one: Against, share: float) -> list[tuple[Done, Done]]:
        """(baseline, level) of the seeds that both have, by seed."""
        base, level = self.done(one.base, share), self.done(one.cell, share)
        return [(base[seed], level[seed]) for seed in sorted(base.keys() & level.keys())]


def final_loss(outcome: Outcome) -> float | None:
    """Held-out nats per token of a finished run. None for others: what a diverged run had before it is no result."""
    loss = outcome.nats_per_token
    return loss if outcome.status == "finished" and loss is not None and math.isfinite(loss) else None


def together(series: Sequence[Sequence[tuple[Any, ...]]]) -> list[list[tuple[Any, ...]]]:
    """Series of (tokens, ...) of the seeds of one arm with common token counts. Seeds that look after the same steps
    have predicted a few tokens more or less, by where documents end: counts within 1 % become their mean, others stay.
    """
    counts = [[one[0] for one in each] for each in series]
    common = [sum(place) / len(place) for place in zip(*counts, strict=False)]
    alike = all(
        len(each) == len(common) and all(abs(a - b) <= SAME * b for a, b in zip(each, common, strict=True))
        for each in counts
    )
    return [[(common[at] if alike else one[0], *one[1:]) for at, one in enumerate(each)] for each in series]


def named(axis: str, level: str) -> str:
    """A level as it stands by itself: a number with its axis, a name without."""
    try:
        float(level)
    except ValueError:
        return level if level not in ("true", "false", "null") else f"{axis} {level}"
    return f"{axis} {level}"


def arm(levels: Sequence[tuple[str, str]]) -> str:
    return ", ".join(named(axis, level) for axis, level in levels)


def without(cell: Cell, axis: str) -> str:
    """The levels of all axes but one; empty where there is no other."""
    return arm([one for one in cell.levels if one[0] != axis])


def told(tuned: Mapping[str, float]) -> str:
    return ", ".join(f"{path}={value:g}" for path, value in tuned.items())
