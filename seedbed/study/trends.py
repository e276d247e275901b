"""What a study says beyond its last losses: learning curves, tokens to a loss, optimum."""

from collections.abc import Mapping, Sequence

from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import (
    DOUBLING,
    CurveRow,
    KnobRow,
    MovementRow,
    OptimumRow,
    TokensRow,
)
from seedbed.study.compared import Against, BySeed, Compared, arm, named, together, without
from seedbed.study.curves import Curve, band, ends_to_loss, tokens_ratio, tokens_to_loss
from seedbed.study.optimum import Optimum, movement, optimum
from seedbed.study.plan import Cell
from seedbed.study.statistics import Difference, mean_interval


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
        return [_moved(others, share, DOUBLING, None, None, str(error))]
    rows = [_moved(others, share, DOUBLING, found.slope, None, found.reason)]
    for pair in found.pairs if len(found.widths) > 2 else ():  # of two the doubling says it all
        rows.append(_moved(others, share, f"{pair.narrow:g} to {pair.wide:g}", pair.moved, pair.p_holm, ""))
    return rows


def _moved(
    others: str, share: float, what: str, one: Difference | None, p_holm: float | None, reason: str
) -> MovementRow:
    if one is None:
        return MovementRow(others, share, what, None, None, None, None, None, 0, reason)
    return MovementRow(others, share, what, one.mean, one.low, one.high, one.p, p_holm, one.n, reason)


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
