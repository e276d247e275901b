"""Tables of what goes with a model's size: effective size, the fits behind it, the optimum over widths."""

from seedbed.report.render import count, number, signed
from seedbed.report.sections import TableView
from seedbed.report.study_rows import StudyResult
from seedbed.report.study_tables import between, p_told, plain_table, smoke_titled, span, whole_and_shares
from seedbed.report.style import short


def gain_tables(result: StudyResult) -> list[TableView]:
    """Of the whole budget, and of its shares."""
    columns = ["level", "among", "size", "share", "parameters", "N", "N′", "N′/N − 1"]
    columns += [*([] if result.smoke else ["95 % interval", "p (Holm)", "seeds"]), "why none"]
    rows = [
        [r.level, r.others or "–", r.size, short(r.share), r.counted, count(r.parameters),
         "–" if r.same_as is None else count(r.same_as), _percent(r.gain),
         *([] if result.smoke else [_percents(r.low, r.high), p_told(r.p_holm), str(r.n)]), r.reason]
        for r in result.effective_sizes
    ]  # fmt: skip
    how = ", ".join(dict.fromkeys(row.method for row in result.effective_sizes))
    return whole_and_shares(result, f"Effective size against {result.baseline}, by {how}", columns, rows, left=5)


def fits_table(result: StudyResult) -> TableView:
    """L = E + A·(N / smallest N)^−α of each seed, whole budget."""
    columns = ["level", "among", "parameters", "seed", "E", "α", f"A, {result.baseline}", "A, level", "rms left"]
    rows = [
        [r.level, r.others or "–", r.counted, str(r.seed), number(r.floor), number(r.exponent), number(r.base_scale),
         number(r.arm_scale), number(r.rms, 2)]
        for r in result.fits if r.share == 1.0
    ]  # fmt: skip
    return plain_table("Fits L = E + A·(N / smallest N)^−α, nats per token", columns, rows, 4, folded=True)


def optimum_tables(result: StudyResult) -> list[TableView]:
    columns = ["among", "size", "share", "optimum", *([] if result.smoke else ["95 % interval", "seeds"]), "fit to",
               "note"]  # fmt: skip
    rows = []
    for r in result.optima:
        line = [r.others or "–", r.size, short(r.share), number(r.at)]
        line += [] if result.smoke else [span(r.low, r.high, 3), str(r.n)]
        rows.append([*line, r.points, "; ".join(filter(None, (r.reason, r.notes)))])
    tables = [plain_table(smoke_titled(result, f"Best {result.optimum}"), columns, rows, left=2)]
    if result.movements and not result.smoke:
        columns = ["among", "share", "widths", "moves by", "95 % interval", "p", "p (Holm)", "seeds", "note"]
        rows = [
            [r.others or "–", short(r.share), r.what, signed(r.mean), between(r.low, r.high), p_told(r.p),
             p_told(r.p_holm), str(r.n), r.reason]
            for r in result.movements
        ]  # fmt: skip
        tables.append(plain_table(f"Whether the best {result.optimum} moves with width", columns, rows, left=3))
    return tables


def _percents(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{_percent(low)} to {_percent(high)}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{signed(100 * value, 1)} %"
