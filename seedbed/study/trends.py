"""What a study says beyond its last losses: learning curves, tokens to a loss, effective size, optimum."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import (
    CurveRow,
    FitRow,
    GainRow,
    KnobRow,
    MovementRow,
    NoteRow,
    OptimumRow,
    TokensRow,
)
from seedbed.study.compared import Against, BySeed, Compared, arm, named, together, without
from seedbed.study.curves import Curve, band, ends_to_loss, tokens_ratio, tokens_to_loss
from seedbed.study.effective_size import effective_size
from seedbed.study.optimum import Optimum, movement, optimum
from seedbed.study.plan import Cell
from seedbed.study.statistics import Difference, holm, mean_interval

COUNTED = {"all parameters": lambda done: done.trial.parameters, "without embeddings": lambda d: d.trial.non_embedding}

SLOPE = "slope over ln width"


def curve_rows(found: Compared) -> tuple[Rows[CurveRow], list[str]]:
    """Bands of the runs of the whole budget; what has none, and why."""
    rows, problems = Rows[CurveRow](), []
    for cell, _, done in found.each(1.0):
        try:
            drawn = band(together([one.outcome.curve for one in done.values()]))
        except ValueError as error:
            problems.append(f"learning curve of {_place(cell)}: {error}")
            continue
        for tokens, one in zip(drawn.tokens, drawn.intervals, strict=True):
            row = arm(cell.levels), cell.size, tokens, one.mean, one.low, one.high, one.n, drawn.interpolated
            rows.append(CurveRow(*row))
    return rows, problems


def tokens_rows(found: Compared) -> tuple[Rows[TokensRow], list[str]]:
    """Tokens of each level to the baseline's final loss, and the other way round: by the ends of runs of the shares
    where the study has several, otherwise by learning curves."""
    rows, problems = Rows[TokensRow](), []
    by, to_loss = ("ends", ends_to_loss) if len(found.shares) > 1 else ("curves", tokens_to_loss)
    base = named(found.plan.spec.compare.axis, found.plan.spec.compare.baseline)
    for one in found.against():
        curves = (
            _ends(found, one)
            if by == "ends"
            else [(a.outcome.curve, b.outcome.curve) for a, b in found.pairs(one, 1.0)]
        )
        if not curves:
            continue
        for level, target, ordered in (
            (one.level, base, curves),
            (base, one.level, [(b, a) for a, b in curves]),
        ):
            try:
                ratio = tokens_ratio([to_loss(aim, learner) for aim, learner in ordered])
            except ValueError as error:
                problems.append(f"tokens of {level} to the loss of {target}, {_place(one.cell)}: {error}")
                continue
            told = ratio.ratio, ratio.low, ratio.high, ratio.p, ratio.n, ratio.reason
            rows.append(TokensRow(one.others, one.cell.size, 1.0, level, target, by, *told))
    return rows, problems


def _ends(found: Compared, one: Against) -> list[tuple[Curve, Curve]]:
    """(tokens, final loss) by share of baseline and level, of the seeds that have all shares of both."""
    shares = sorted(found.shares)
    seeds = set.intersection(*({base.trial.seed for base, _ in found.pairs(one, share)} for share in shares))
    cells = one.base, one.cell
    done = [[[found.done(cell, share)[seed] for share in shares] for cell in cells] for seed in sorted(seeds)]
    base, level = ([[(run.trial.tokens, run.loss) for run in both[side]] for both in done] for side in (0, 1))
    return list(zip(base, level, strict=True))


def size_rows(found: Compared) -> tuple[Rows[GainRow], Rows[FitRow], Rows[NoteRow], list[str]]:
    """Effective size of each level at each share, with embeddings counted and without."""
    gains, fits, notes, problems = Rows[GainRow](), Rows[FitRow](), Rows[NoteRow](), []
    if len(found.sizes) < 2:
        return gains, fits, notes, problems
    base = named(found.plan.spec.compare.axis, found.plan.spec.compare.baseline)
    for kind, alike in _kinds(found).items():
        for share in found.shares:
            for counted in COUNTED:
                told = f"effective size of {', '.join(filter(None, (kind[1], kind[0])))}, share {share:g}, {counted}"
                try:
                    size = effective_size(*_by_size(found, alike, share, counted))
                except ValueError as error:
                    problems.append(f"{told}: {error}")
                    continue
                notes += [NoteRow(*kind, share, counted, note) for note in size.notes]
                names = _names(found, alike, share, counted)
                trend_p = None if size.trend is None else size.trend.p
                for one in size.gains:
                    numbers = one.same_as, one.gain, one.low, one.high, one.p, one.n, one.reason
                    place = *kind, base, names[one.size], share, counted, size.method, one.size
                    gains.append(GainRow(*place, *numbers, trend_p, None))
                for fit in size.fits:
                    left = [*fit.base_left, *fit.arm_left]
                    rms = math.sqrt(sum(one * one for one in left) / len(left))
                    scales = fit.floor, fit.exponent, fit.base_scale, fit.arm_scale, rms
                    fits.append(FitRow(*kind, share, counted, fit.seed, *scales))
    return _corrected(gains), fits, notes, problems


def _corrected(gains: Rows[GainRow]) -> Rows[GainRow]:
    """With Holm's p: a fit is one test for all its sizes, an interpolation one for each."""

    def test(row: GainRow) -> tuple[Any, ...]:
        return row.others, row.level, row.share, row.counted, None if row.method == "fit" else row.parameters

    found: dict[tuple[Any, ...], float] = {}
    for share, counted in dict.fromkeys((row.share, row.counted) for row in gains):
        family = {test(r): r.p for r in gains if (r.share, r.counted) == (share, counted) and r.p is not None}
        found |= dict(zip(family, holm(list(family.values())), strict=True))
    return Rows(row if row.p is None else replace(row, p_holm=found[test(row)]) for row in gains)


def knob_rows(found: Compared) -> Rows[KnobRow]:
    """Final losses over the axis whose optimum is looked for."""
    axis, rows = found.plan.spec.optimum, Rows[KnobRow]()
    if axis is None:
        return rows
    values = found.plan.spec.numbers(axis)
    for cell, share, done in found.each():
        loss, value = mean_interval([one.loss for one in done.values()]), values[dict(cell.levels)[axis]]
        told = loss.mean, loss.low, loss.high, loss.n
        rows.append(KnobRow(without(cell, axis), cell.size, share, value, *told))
    return rows


def optimum_rows(found: Compared) -> tuple[Rows[OptimumRow], Rows[MovementRow], list[str]]:
    """The best value of the axis at each size and share, and whether it moves with width."""
    optima, movements, problems = Rows[OptimumRow](), Rows[MovementRow](), []
    axis = found.plan.spec.optimum
    if axis is None:
        return optima, movements, problems
    for others in dict.fromkeys(without(cell, axis) for cell in found.plan.cells):
        for share in found.shares:
            by_width: dict[float, Optimum] = {}
            for size in found.sizes:
                cells = [cell for cell in found.plan.cells if cell.size == size and without(cell, axis) == others]
                known = [cell for cell in cells if found.done(cell, share)]
                try:
                    one = optimum(_by_value(found, cells, share))
                except ValueError as error:
                    told = ", ".join(filter(None, (others, size)))
                    problems.append(f"optimum of {axis} at {told}, share {share:g}: {error}")
                    continue
                trial = next(iter(found.done(known[0], share).values())).trial
                width, density = trial.config.model.d_model, trial.tokens / trial.parameters
                by_width[width] = one
                points = ", ".join(f"{value:g}" for value in one.points)
                told = one.at, one.low, one.high, len(one.seeds), points, one.reason, "; ".join(one.notes)
                optima.append(OptimumRow(others, size, width, share, density, *told))
            movements += _movements(others, share, by_width)
    return optima, movements, problems


def _movements(others: str, share: float, by_width: Mapping[float, Optimum]) -> list[MovementRow]:
    if len(by_width) < 2:
        return []
    try:
        found = movement(by_width)
    except ValueError as error:
        return [_moved(others, share, SLOPE, None, None, str(error))]
    rows = [_moved(others, share, SLOPE, found.slope, None, found.reason)]
    for pair in found.pairs:
        rows.append(_moved(others, share, f"{pair.narrow:g} to {pair.wide:g}", pair.moved, pair.p_holm, ""))
    return rows


def _moved(
    others: str, share: float, what: str, one: Difference | None, p_holm: float | None, reason: str
) -> MovementRow:
    if one is None:
        return MovementRow(others, share, what, None, None, None, None, None, 0, reason)
    return MovementRow(others, share, what, one.mean, one.low, one.high, one.p, p_holm, one.n, reason)


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


def _by_value(found: Compared, cells: Sequence[Cell], share: float) -> dict[int, dict[float, float]]:
    assert found.plan.spec.optimum is not None
    values = found.plan.spec.numbers(found.plan.spec.optimum)
    losses: dict[int, dict[float, float]] = {}
    for cell in cells:
        runs: BySeed = found.done(cell, share)
        for seed, run in runs.items():
            losses.setdefault(seed, {})[values[dict(cell.levels)[found.plan.spec.optimum]]] = run.loss
    return losses


def _place(cell: Cell) -> str:
    return arm(cell.levels) if cell.size == "base" else f"{arm(cell.levels)}, {cell.size}"
