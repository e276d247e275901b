"""Tables of a study, for page, Markdown and terminal alike."""

from collections.abc import Sequence
from typing import Any

from seedbed.report.render import count, number, signed
from seedbed.report.sections import TableView
from seedbed.report.study_rows import StudyResult
from seedbed.report.study_trend_rows import LookRow
from seedbed.report.style import short

LONG, BRIEF = 40, 24
"""Lines of a table beyond which it is folded on the page, and beyond which a terminal does not show it."""
NAME = 28
PLACES = 3
"""Decimals of losses and differences, in nats a token."""


def between(low: float | None, high: float | None, digits: int = PLACES) -> str:
    """An interval of differences, or a dash where there is none."""
    return "–" if low is None or high is None else f"{signed(low, digits)} to {signed(high, digits)}"


def span(low: float | None, high: float | None, digits: int = 4) -> str:
    """An interval of positive numbers, to so many significant digits; open where one bound is missing."""
    if low is None and high is None:
        return "–"
    return f"{'?' if low is None else number(low, digits)} to {'?' if high is None else number(high, digits)}"


def p_told(p: float | None) -> str:
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def status_tables(result: StudyResult) -> list[TableView]:
    """How far each cell is, and the reason of each run without a loss."""
    columns = ["arm", "size", "parameters", "without embeddings"]
    columns += (["tuning runs"] if result.tuned_paths else []) + ["runs of the comparison"]
    rows = []
    for cell in result.cells:
        line = [cell.arm, cell.size, count(cell.parameters), count(cell.non_embedding)]
        if result.tuned_paths:
            line.append(_ended(cell.tune_finished, cell.tune_diverged, cell.tune_failed, cell.tune_missing))
        rows.append([*line, _ended(cell.finished, cell.diverged, cell.failed, cell.missing)])
    tables = [_table("Runs of each arm and size", columns, rows, left=2)]
    without = [
        [row.arm, row.size, row.stage, short(row.share), str(row.seed), row.tuned, row.status, row.reason, row.key]
        for row in result.runs
        if row.status != "finished"
    ]
    waiting = [
        [cell.arm, cell.size, "compare", "all", "all", "–", "missing", cell.problem or "waits for its tuning", "–"]
        for cell in result.cells
        if result.tuned_paths and not cell.tuned
    ]
    columns = ["arm", "size", "stage", "share", "seed", "tuned", "status", "reason", "run"]
    lost = [*waiting, *without]
    return [*tables, _table("Runs without a result", columns, lost, left=9)] if lost else tables


def chosen_table(result: StudyResult) -> TableView:
    """What each arm took, by size."""
    chosen = {(cell.arm, cell.size): cell.tuned or "–" for cell in result.cells}
    paths = ", ".join(result.tuned_paths)
    short_form = {
        key: told.removeprefix(f"{paths}=") if len(result.tuned_paths) == 1 else told for key, told in chosen.items()
    }
    rows = [[arm, *(short_form[arm, size] for size in result.sizes)] for arm in result.arms]
    return _table(f"{paths}, best on seed {result.tuning_seed}", ["arm", *result.sizes], rows)


def loss_tables(result: StudyResult) -> list[TableView]:
    """Of the whole budget, and of its shares."""
    columns = ["arm", "size", "share", "tokens", "tokens / param.", "without emb.", "FLOPs", "loss"]
    columns += [] if result.smoke else ["sd", "95 % interval", "seeds"]
    columns += ["bits / byte", "end slope"]
    rows = []
    for row in result.losses:
        line = [row.arm, row.size, short(row.share), count(row.tokens), number(row.tokens_per_parameter),
                number(row.tokens_per_non_embedding), number(row.flops), f"{row.mean:.{PLACES}f}"]  # fmt: skip
        if not result.smoke:
            line += [number(row.std, 2), _losses(row.low, row.high), f"{row.n} of {row.seeds}"]
        byte = "–" if row.bits_per_byte is None else f"{row.bits_per_byte:.{PLACES}f}"
        rows.append([*line, byte, signed(row.end_slope, 2)])
    return _whole_and_shares(result, "Held-out loss after the last step, nats a token", columns, rows, left=2)


def difference_tables(result: StudyResult) -> list[TableView]:
    """Of the whole budget, and of its shares."""
    columns = ["level", "among", "size", "share", "tokens / param.", "without emb.", "difference"]
    columns += [] if result.smoke else ["95 % interval", "p", "p (Holm)", "seeds"]
    rows = []
    for row in result.differences:
        line = [row.level, row.others or "–", row.size, short(row.share), number(row.tokens_per_parameter),
                number(row.tokens_per_non_embedding), signed(row.mean, PLACES)]  # fmt: skip
        if not result.smoke:
            line += [between(row.low, row.high), p_told(row.p), p_told(row.p_holm), f"{row.n} of {row.seeds}"]
        rows.append(line)
    return _whole_and_shares(result, f"Loss less that of {result.baseline}, nats a token", columns, rows, left=3)


def slope_table(result: StudyResult) -> TableView:
    columns = ["level", "among", "over", "at", "points", "d difference / d ln x", *_tested(result)]
    rows = [
        [r.level, r.others or "–", r.over, r.at if r.over == "tokens" else f"share {r.at}", str(r.points),
         signed(r.mean, PLACES), *_test(result, between(r.low, r.high), r.p, r.n)]
        for r in result.slopes
    ]  # fmt: skip
    return _table(_smoke(result, "How differences go with tokens and parameters"), columns, rows, left=4)


def tokens_table(result: StudyResult) -> TableView:
    columns = ["learner", "to the final loss of", "among", "size", "tokens, ratio", *_tested(result), "why none"]
    rows = [
        [r.level, r.target, r.others or "–", r.size, number(r.ratio), *_test(result, span(r.low, r.high, 3), r.p, r.n),
         r.reason]
        for r in result.tokens_to_loss
    ]  # fmt: skip
    return _table(_smoke(result, "Tokens to a loss"), columns, rows, left=4)


def gain_tables(result: StudyResult) -> list[TableView]:
    """Of the whole budget, and of its shares."""
    columns = ["level", "among", "share", "parameters counted", "method", "N", "N′", "N′/N − 1", *_tested(result),
               "why none"]  # fmt: skip
    rows = [
        [r.level, r.others or "–", short(r.share), r.counted, r.method, count(r.parameters),
         "–" if r.same_as is None else count(r.same_as), _percent(r.gain),
         *_test(result, f"{_percent(r.low)} to {_percent(r.high)}" if r.low is not None else "–", r.p, r.n), r.reason]
        for r in result.effective_sizes
    ]  # fmt: skip
    return _whole_and_shares(result, f"Effective size against {result.baseline}", columns, rows, left=5)


def optimum_tables(result: StudyResult) -> list[TableView]:
    columns = ["among", "size", "share", "optimum", *([] if result.smoke else ["95 % interval", "seeds"]), "fit to",
               "note"]  # fmt: skip
    rows = []
    for r in result.optima:
        line = [r.others or "–", r.size, short(r.share), number(r.at)]
        line += [] if result.smoke else [span(r.low, r.high, 3), str(r.n)]
        rows.append([*line, r.points, "; ".join(filter(None, (r.reason, r.notes)))])
    tables = [_table(_smoke(result, f"Best {result.optimum}"), columns, rows, left=2)]
    if result.movements and not result.smoke:
        columns = ["among", "share", "widths", "moves by", "95 % interval", "p", "p (Holm)", "seeds", "note"]
        rows = [
            [r.others or "–", short(r.share), r.what, signed(r.mean), between(r.low, r.high), p_told(r.p),
             p_told(r.p_holm), str(r.n), r.reason]
            for r in result.movements
        ]  # fmt: skip
        tables.append(_table(f"Whether the best {result.optimum} moves with width", columns, rows, left=3))
    return tables


def look_tables(result: StudyResult) -> list[TableView]:
    """What was observed of the runs of the whole budget: single numbers, and those of each layer."""
    rows = [row for row in result.looks if row.share == 1.0]
    measures = list(dict.fromkeys((row.measure, row.part) for row in rows))
    whole = [key for key in measures if key[1] in ("", "first norm", "worst norm")]
    titles = {"whole": whole, "branches": [k for k in measures if k[0] in ("attn / stream", "mlp / stream")],
              "norms": [k for k in measures if k[0] == "masking" and k not in whole],
              "weights": [k for k in measures if k[0].startswith("weights")]}  # fmt: skip
    told = {"whole": "Before the first step and after the last, means over seeds",
            "branches": "Branches over the stream that they are added to, by layer",
            "norms": "Masking m of every norm", "weights": "Weights by component"}  # fmt: skip
    return [_looks(told[name], rows, keys, name != "whole") for name, keys in titles.items() if keys]


def config_tables(result: StudyResult) -> list[TableView]:
    """Fields in which cells differ, of the whole budget; those in which shares differ; those that all have alike."""
    whole = [row for row in result.configs if row.share == 1.0]
    paths = list(dict.fromkeys(row.path for row in result.configs))
    values = {(row.arm, row.size, row.share, row.path): row.value for row in result.configs}
    among = [path for path in paths if len({row.value for row in whole if row.path == path}) > 1]
    cells = list(dict.fromkeys((row.arm, row.size) for row in whole))
    rows = [[arm, size, *(values[arm, size, 1.0, path] for path in among)] for arm, size in cells]
    tables = [_table("Settings in which arms and sizes differ", ["arm", "size", *among], rows, left=2)]
    timed = [path for path in paths if any(len({values[*c, s, path] for s in result.shares}) > 1 for c in cells)]
    if timed:
        rows = [[*c, short(s), *(values[*c, s, path] for path in timed)] for c in cells for s in result.shares]
        tables.append(_table("Settings in which shares differ", ["arm", "size", "share", *timed], rows, folded=True))
    rows = [[path, value] for path, value in result.shared.items()]
    return [*tables, _table("Settings that all runs have", ["setting", "value"], rows, left=2, folded=True)]


def runs_table(result: StudyResult) -> TableView:
    """Every run with its key."""
    columns = ["run", "stage", "arm", "size", "share", "seed", "tuned", "status", "loss", "tokens", "seconds"]
    rows = [
        [r.key, r.stage, r.arm, r.size, short(r.share), str(r.seed), r.tuned or "–", r.status,
         "–" if r.nats_per_token is None else f"{r.nats_per_token:.4f}", count(r.tokens), number(r.wall_s)]
        for r in result.runs
    ]  # fmt: skip
    return _table("Every run", columns, rows, left=8, folded=True)


def _looks(title: str, rows: Sequence[LookRow], keys: Sequence[tuple[str, str]], folded: bool) -> TableView:
    cells = list(dict.fromkeys((row.arm, row.size) for row in rows))
    values = {(row.arm, row.size, row.measure, row.part, row.when): row for row in rows}
    lines = []
    for arm, size in cells:
        for measure, part in keys:
            both: list[Any] = [values.get((arm, size, measure, part, when)) for when in ("before", "after")]
            told = [
                cell for one in both for cell in ([number(one.mean), span(one.low, one.high, 3)] if one else ["–", "–"])
            ]
            seeds = max(one.n for one in both if one) if any(both) else 0
            lines.append([arm, size, " ".join(filter(None, (measure, part))), *told, str(seeds)])
    columns = ["arm", "size", "measure", "before", "95 % interval", "after", "95 % interval", "seeds"]
    return _table(title, columns, lines, left=3, folded=folded)


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, folded: bool = False
) -> TableView:
    folded = folded or len(rows) > LONG
    rows = [[_unbroken(cell) for cell in row[:left]] + list(row[left:]) for row in rows]
    return TableView(title, columns, rows, left=left, brief=not folded and len(rows) <= BRIEF, folded=folded)


def _whole_and_shares(
    result: StudyResult, title: str, columns: list[str], rows: list[list[str]], left: int
) -> list[TableView]:
    at, title = columns.index("share"), _smoke(result, title)
    whole, shares = [row for row in rows if row[at] == "1"], [row for row in rows if row[at] != "1"]
    folded = [_table(f"{title}: shares of the budget", columns, shares, left, folded=True)] if shares else []
    return [_table(title, columns, whole, left), *folded]


def _tested(result: StudyResult) -> list[str]:
    return [] if result.smoke else ["95 % interval", "p", "seeds"]


def _test(result: StudyResult, interval: str, p: float | None, n: int) -> list[str]:
    return [] if result.smoke else [interval, p_told(p), str(n)]


def _smoke(result: StudyResult, title: str) -> str:
    return f"{title} (smoke: one seed)" if result.smoke else title


def _losses(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:.{PLACES}f} to {high:.{PLACES}f}"


def _unbroken(cell: str) -> str:
    """A name stays on one line, a sentence does not."""
    return cell.replace(" ", "\u00a0") if len(cell) <= NAME else cell


def _ended(finished: int, diverged: int, failed: int, missing: int) -> str:
    """Counts, those of nothing left out."""
    counts = {"finished": finished, "diverged": diverged, "failed": failed, "missing": missing}
    return ", ".join(f"{number} {status}" for status, number in counts.items() if number)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{signed(100 * value, 1)} %"
