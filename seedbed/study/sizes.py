"""What a study says of model sizes: losses over parameters, and the effective size of each level."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import FitRow, GainRow, NoteRow, ScalingRow
from seedbed.study.compared import Against, Compared, named
from seedbed.study.effective_size import effective_size
from seedbed.study.statistics import holm, mean_interval

COUNTED = {"all parameters": lambda done: done.trial.parameters, "without embeddings": lambda d: d.trial.non_embedding}


@dataclass(frozen=True)
class SizeRows:
    """What a study says of sizes; empty where it has one."""

    scaling: Rows[ScalingRow] = field(default_factory=Rows)
    gains: Rows[GainRow] = field(default_factory=Rows)
    fits: Rows[FitRow] = field(default_factory=Rows)
    notes: Rows[NoteRow] = field(default_factory=Rows)
    problems: list[str] = field(default_factory=list)


def size_rows(found: Compared) -> SizeRows:
    """Effective size of each level at each share, with embeddings counted and without, and the losses it comes from."""
    rows = SizeRows()
    if len(found.sizes) < 2:
        return rows
    base = named(found.plan.spec.compare.axis, found.plan.spec.compare.baseline)
    for kind, alike in _kinds(found).items():
        for share in found.shares:
            for counted in COUNTED:
                told = f"effective size of {', '.join(filter(None, (kind[1], kind[0])))}, share {share:g}, {counted}"
                both = _by_size(found, alike, share, counted)
                try:
                    size = effective_size(*both)
                except ValueError as error:
                    rows.problems.append(f"{told}: {error}")
                    continue
                rows.notes.extend(NoteRow(*kind, share, counted, note) for note in size.notes)
                names = _names(found, alike, share, counted)
                trend_p = None if size.trend is None else size.trend.p
                for one in size.gains:
                    place = *kind, base, names[one.size], share, counted
                    numbers = one.same_as, one.gain, one.low, one.high, one.p, one.n, one.reason
                    rows.gains.append(GainRow(*place, size.method, one.size, *numbers, trend_p, None))
                    rows.scaling.append(ScalingRow(*place, one.size, *_means(both, one.size)))
                for fit in size.fits:
                    left = [*fit.base_left, *fit.arm_left]
                    rms = math.sqrt(sum(one * one for one in left) / len(left))
                    scales = fit.floor, fit.exponent, fit.base_scale, fit.arm_scale, rms
                    rows.fits.append(FitRow(*kind, share, counted, fit.seed, *scales))
    return replace(rows, gains=_corrected(rows.gains))


def _means(both: Sequence[Mapping[int, Mapping[float, float]]], size: float) -> tuple[Any, ...]:
    """Mean and interval of baseline and level at a size, over the seeds that both have; how many those are."""
    seeds = set.intersection(*map(set, both))
    base, level = (mean_interval([losses[seed][size] for seed in seeds]) for losses in both)
    return base.mean, base.low, base.high, level.mean, level.low, level.high, len(seeds)


def _corrected(gains: Rows[GainRow]) -> Rows[GainRow]:
    """With Holm's p: a fit is one test for all its sizes, an interpolation one for each."""

    def test(row: GainRow) -> tuple[Any, ...]:
        return row.others, row.level, row.share, row.counted, None if row.method == "fit" else row.parameters

    found: dict[tuple[Any, ...], float] = {}
    for share, counted in dict.fromkeys((row.share, row.counted) for row in gains):
        family = {test(r): r.p for r in gains if (r.share, r.counted) == (share, counted) and r.p is not None}
        found |= dict(zip(family, holm(list(family.values())), strict=True))
    return Rows(row if row.p is None else replace(row, p_holm=found[test(row)]) for row in gains)


def _kinds(found: Compared) -> dict[tuple[str, str], list[Against]]:
    """Comparisons by (others, level): one a size."""
    kinds: dict[tuple[str, str], list[Against]] = {}
    for one in found.against():
        kinds.setdefault((one.others, one.level), []).append(one)
    return kinds


def _by_size(
    found: Compared, alike: Sequence[Against], share: float, counted: str
) -> tuple[dict[int, dict[float, float]], dict[int, dict[float, float]]]:
    """Losses of baseline and level by seed and size. The size is the baseline's where the level has more parameters,
    such as a gate's: the question is which baseline does as well."""
    base: dict[int, dict[float, float]] = {}
    level: dict[int, dict[float, float]] = {}
    for one in alike:
        done = found.done(one.base, share)
        for runs, losses in ((done, base), (found.done(one.cell, share), level)):
            if done:
                size = COUNTED[counted](next(iter(done.values())))
                for seed, run in runs.items():
                    losses.setdefault(seed, {})[size] = run.loss
    return base, level


def _names(found: Compared, alike: Sequence[Against], share: float, counted: str) -> dict[float, str]:
    """Names of sizes by the parameters of the baseline."""
    done = {one.cell.size: found.done(one.base, share) for one in alike}
    return {COUNTED[counted](next(iter(runs.values()))): size for size, runs in done.items() if runs}
