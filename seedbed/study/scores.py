"""Scores of a study's models on texts and minimal pairs, put together over seeds."""

from collections.abc import Mapping
from typing import Any

from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import ScoreRow
from seedbed.study.compared import BySeed, Compared, arm
from seedbed.study.statistics import mean_interval, paired

Scores = Mapping[tuple[str, str, str], dict[str, Any]]
"""By task, subset and metric."""


def score_rows(found: Compared) -> tuple[Rows[ScoreRow], list[str]]:
    """Means over seeds of the runs of the whole budget, by arm and score; and how they were made, in sentences.

    What an arm has more than the baseline is the mean over the seeds that both have.
    """
    look = found.plan.evaluation
    rows, told = Rows[ScoreRow](), dict[str, None]()
    if look is None:
        return rows, []
    against = {one.cell: one.base for one in found.against()}
    for cell, _, done in found.each(1.0):
        told |= dict.fromkeys(line for one in done.values() for line in one.outcome.after.get(look, {}).get("told", ()))
        own, base = _by_seed(done, look), _by_seed(found.done(against[cell]) if cell in against else {}, look)
        shared = sorted(own.keys() & base.keys())
        for kind, first in next(iter(own.values()), {}).items():
            mean = mean_interval([scores[kind]["value"] for scores in own.values()])
            both = [[of[seed][kind]["value"] for seed in shared] for of in (base, own)]
            more = paired(*both) if shared else None
            task, subset, metric = kind
            rows.append(
                ScoreRow(
                    arm=arm(cell.levels), size=cell.size, task=task, subset=subset, metric=metric, unit=first["unit"],
                    better=first["better"], items=first["items"], mean=mean.mean, low=mean.low, high=mean.high,
                    n=mean.n, more=more and more.mean, more_low=more and more.low, more_high=more and more.high,
                )
            )  # fmt: skip
    return rows, list(told)


def _by_seed(done: BySeed, look: str) -> dict[int, Scores]:
    """Of the runs that were asked."""
    asked = {seed: one.outcome.after[look]["scores"] for seed, one in done.items() if look in one.outcome.after}
    return {
        seed: {(one["task"], one["subset"], one["metric"]): one for one in scores} for seed, scores in asked.items()
    }
