"""Final losses of a study and their differences, over seeds."""

import math
from dataclasses import replace

from seedbed.measure.table import Rows
from seedbed.report.study_rows import DifferenceRow, LossRow, SlopeRow
from seedbed.study.compared import Against, BySeed, Compared, Done, arm, named
from seedbed.study.curves import end_slope
from seedbed.study.plan import Cell
from seedbed.study.statistics import holm, mean_interval, paired, per_doubling

COUNTS = {"parameters": lambda done: done.trial.parameters, "non-embedding parameters": lambda d: d.trial.non_embedding}


def loss_rows(found: Compared) -> Rows[LossRow]:
    """Final losses of each cell and share that has a finished run."""
    rows: Rows[LossRow] = Rows()
    for cell, share, done in found.each():
        trial, whole = next(iter(done.values())).trial, found.trials[cell][0]
        loss = mean_interval([one.loss for one in done.values()])
        bits = [one.outcome.bits_per_byte for one in done.values()]
        known = [value for value in bits if value is not None and math.isfinite(value)]
        byte = mean_interval(known) if len(known) == len(bits) else None
        slopes = _end_slopes(found, cell, share, done)
        slope = mean_interval(slopes) if slopes else None
        rows.append(
            LossRow(
                arm=arm(cell.levels), size=cell.size, share=share, tokens=trial.tokens, parameters=trial.parameters,
                tokens_per_parameter=trial.tokens / trial.parameters,
                tokens_per_non_embedding=trial.tokens / trial.non_embedding,
                flops=whole.flops / whole.tokens * trial.tokens,
                mean=loss.mean, std=loss.std, low=loss.low, high=loss.high, n=loss.n, seeds=len(found.plan.spec.seeds),
                bits_per_byte=byte and byte.mean, bits_low=byte and byte.low, bits_high=byte and byte.high,
                end_slope=slope and slope.mean, slope_low=slope and slope.low, slope_high=slope and slope.high,
            )
        )  # fmt: skip
    return rows


def difference_rows(found: Compared) -> Rows[DifferenceRow]:
    """Paired differences to the baseline, each share a family of comparisons of its own for Holm's correction."""
    rows: Rows[DifferenceRow] = Rows()
    for share in found.shares:
        rows += _corrected([row for one in found.against() if (row := _difference(found, one, share))])
    return rows


def slope_rows(found: Compared) -> Rows[SlopeRow]:
    """How differences change with a doubling of tokens, over the shares of a size, and of parameters, over the sizes of
    a share; over the seeds that have all of them."""
    rows: Rows[SlopeRow] = Rows()
    for one in found.against():
        pairs = {share: found.pairs(one, share) for share in found.shares}
        rows += _slope(found, one, "tokens", one.cell.size, [(p[0][1].trial.tokens, p) for p in pairs.values() if p])
    kinds = list(dict.fromkeys((one.others, one.level) for one in found.against()))
    for share in found.shares:
        for kind in kinds:
            alike = [one for one in found.against() if (one.others, one.level) == kind]
            pairs = [p for one in alike if (p := found.pairs(one, share))]
            for over, counted in COUNTS.items():
                rows += _slope(found, alike[0], over, f"{share:g}", [(counted(p[0][1]), p) for p in pairs])
    return rows


def _end_slopes(found: Compared, cell: Cell, share: float, done: BySeed) -> list[float]:
    """Of each seed the change of loss with a doubling of tokens up to ``share``: from the next smaller one, a run with
    a cooldown of its own, and along the run where a study has one share. None of them where a seed has none."""
    if len(found.shares) == 1:
        slopes = [end_slope(one.outcome.curve) if one.outcome.curve else None for one in done.values()]
        known = [slope for slope in slopes if slope is not None]
        return known if len(known) == len(done) else []
    before = found.done(cell, max((other for other in found.shares if other < share), default=0.0))
    if not done.keys() <= before.keys():
        return []
    pairs = [(before[seed], one) for seed, one in done.items()]
    return [(end.loss - first.loss) / math.log2(end.trial.tokens / first.trial.tokens) for first, end in pairs]


def _difference(found: Compared, one: Against, share: float) -> DifferenceRow | None:
    pairs = found.pairs(one, share)
    if not pairs:
        return None
    trial = pairs[0][1].trial
    difference = paired([base.loss for base, _ in pairs], [level.loss for _, level in pairs])
    return DifferenceRow(
        others=one.others, level=one.level, baseline=_baseline(found), size=one.cell.size, share=share,
        parameters=trial.parameters, non_embedding=trial.non_embedding,
        tokens_per_parameter=trial.tokens / trial.parameters,
        tokens_per_non_embedding=trial.tokens / trial.non_embedding,
        mean=difference.mean, std=difference.std, low=difference.low, high=difference.high, p=difference.p,
        p_holm=None, family=0, n=difference.n, seeds=len(found.plan.spec.seeds),
    )  # fmt: skip


def _corrected(rows: list[DifferenceRow]) -> list[DifferenceRow]:
    """With Holm's p of those that have a p."""
    family = [row for row in rows if row.p is not None]
    p = iter(holm([row.p for row in family if row.p is not None]))
    return [replace(row, p_holm=None if row.p is None else next(p), family=len(family)) for row in rows]


def _slope(
    found: Compared, one: Against, over: str, at: str, points: list[tuple[int, list[tuple[Done, Done]]]]
) -> list[SlopeRow]:
    """Of the differences at ``points``, (x, pairs); none where fewer than two x share a seed."""
    gaps = [{base.trial.seed: level.loss - base.loss for base, level in pairs} for _, pairs in points]
    seeds = sorted(set.intersection(*map(set, gaps))) if gaps else []
    if len({x for x, _ in points}) < 2 or not seeds:
        return []
    slope = per_doubling([x for x, _ in points], [[gap[seed] for gap in gaps] for seed in seeds])
    told = one.others, one.level, _baseline(found), over, at, len(points)
    return [SlopeRow(*told, slope.mean, slope.low, slope.high, slope.p, slope.n)]


def _baseline(found: Compared) -> str:
    return named(found.plan.spec.compare.axis, found.plan.spec.compare.baseline)
