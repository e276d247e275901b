"""Tables of a study, for page, Markdown and terminal alike."""

from collections.abc import Sequence

from seedbed.report.render import count, number, signed
from seedbed.report.sections import TableView
from seedbed.report.study_rows import StudyResult
from seedbed.report.style import short

LONG, BRIEF = 40, 24
"""Lines of a table beyond which it is folded on the page, and beyond which a terminal does not show it."""
MANY = 12
"""Lines of a table of details beyond which it is folded; runs that diverged are told before theirs."""
NAME = 28
NOTES = ("why none", "note")
OPTIONAL = ("among", *NOTES)
PLACES = 3
"""Decimals of losses and differences, in nats per token."""


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
    tables = [plain_table("Runs of each arm and size", columns, rows, left=2)]
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
    return [*tables, plain_table("Runs without a result", columns, lost, 9, len(lost) > MANY)] if lost else tables


def chosen_table(result: StudyResult) -> TableView:
    """What each arm took, by size."""
    chosen = {(cell.arm, cell.size): cell.tuned or "–" for cell in result.cells}
    paths = ", ".join(result.tuned_paths)
    short_form = {
        key: told.removeprefix(f"{paths}=") if len(result.tuned_paths) == 1 else told for key, told in chosen.items()
    }
    rows = [[arm, *(short_form[arm, size] for size in result.sizes)] for arm in result.arms]
    return plain_table(f"{paths}, best on seed {result.tuning_seed}", ["arm", *result.sizes], rows)


def loss_tables(result: StudyResult) -> list[TableView]:
    """Of the whole budget, and of its shares."""
    columns = ["arm", "size", "share", "tokens", "tokens / param.", "without emb.", "FLOPs", "loss"]
    columns += [] if result.smoke else ["± 95 %", "sd", "seeds"]
    columns += ["bits / byte", "end slope", *([] if result.smoke else ["± 95 %"])]
    rows = []
    for row in result.losses:
        line = [row.arm, row.size, short(row.share), count(row.tokens), number(row.tokens_per_parameter),
                number(row.tokens_per_non_embedding), number(row.flops), f"{row.mean:.{PLACES}f}"]  # fmt: skip
        if not result.smoke:
            line += [_half(row.mean, row.high), number(row.std, 2), f"{row.n} of {row.seeds}"]
        byte = "–" if row.bits_per_byte is None else f"{row.bits_per_byte:.{PLACES}f}"
        steep = [signed(row.end_slope), *([] if result.smoke else [_half(row.end_slope, row.slope_high)])]
        rows.append([*line, byte, *steep])
    return whole_and_shares(result, "Held-out loss after the last step, nats per token", columns, rows, left=2)


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
    return whole_and_shares(result, f"Loss less that of {result.baseline}, nats per token", columns, rows, left=3)


def slope_table(result: StudyResult) -> TableView:
    columns = ["level", "among", "over", "at", "points", "a doubling", *_tested(result)]
    rows = [
        [r.level, r.others or "–", r.over, r.at if r.over == "tokens" else f"share {r.at}", str(r.points),
         signed(r.mean, PLACES), *_test(result, between(r.low, r.high), r.p, r.n)]
        for r in result.slopes
    ]  # fmt: skip
    return plain_table(
        smoke_titled(result, "How differences change with tokens and parameters, nats per token"), columns, rows, 4,
        len(rows) > MANY,
    )  # fmt: skip


def tokens_table(result: StudyResult) -> TableView:
    columns = ["learner", "to the loss of", "among", "size", "by", "tokens, ratio", *_tested(result), "why none"]
    rows = [
        [r.level, r.target, r.others or "–", r.size, r.by, number(r.ratio),
         *_test(result, span(r.low, r.high, 3), r.p, r.n), r.reason]
        for r in result.tokens_to_loss
    ]  # fmt: skip
    return plain_table(smoke_titled(result, "Tokens to a loss"), columns, rows, 5)


def config_tables(result: StudyResult) -> list[TableView]:
    """Fields in which cells differ, of the whole budget; those in which shares differ; those that all have alike."""
    whole = [row for row in result.configs if row.share == 1.0]
    paths = list(dict.fromkeys(row.path for row in result.configs))
    values = {(row.arm, row.size, row.share, row.path): row.value for row in result.configs}
    among = [path for path in paths if len({row.value for row in whole if row.path == path}) > 1]
    cells = list(dict.fromkeys((row.arm, row.size) for row in whole))
    rows = [[arm, size, *(values[arm, size, 1.0, path] for path in among)] for arm, size in cells]
    tables = [plain_table("Settings in which arms and sizes differ", ["arm", "size", *among], rows, left=2)]
    timed = [path for path in paths if any(len({values[*c, s, path] for s in result.shares}) > 1 for c in cells)]
    if timed:
        rows = [[*c, short(s), *(values[*c, s, path] for path in timed)] for c in cells for s in result.shares]
        tables.append(
            plain_table("Settings in which shares differ", ["arm", "size", "share", *timed], rows, folded=True)
        )
    rows = [[path, value] for path, value in result.shared.items()]
    return [*tables, plain_table("Settings that all runs have", ["setting", "value"], rows, left=2, folded=True)]


def runs_table(result: StudyResult) -> TableView:
    """Every run with its key."""
    columns = ["run", "stage", "arm", "size", "share", "seed", "tuned", "status", "loss", "tokens", "seconds"]
    rows = [
        [r.key, r.stage, r.arm, r.size, short(r.share), str(r.seed), r.tuned or "–", r.status,
         "–" if r.nats_per_token is None else f"{r.nats_per_token:.4f}", count(r.tokens), number(r.wall_s)]
        for r in result.runs
    ]  # fmt: skip
    return plain_table("Every run", columns, rows, left=8, folded=True)


def plain_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, folded: bool = False
) -> TableView:
    """Without columns that have nothing to say; folded where it is long."""
    folded = folded or len(rows) > LONG
    empty = {
        place
        for place, column in enumerate(columns)
        if column in OPTIONAL and all(row[place] in ("", "–") for row in rows)
    }
    left -= sum(place < left for place in empty)
    columns, *rows = ([cell for place, cell in enumerate(row) if place not in empty] for row in (columns, *rows))
    rows = [[_unbroken(cell) for cell in row[:left]] + row[left:] for row in rows]
    notes = sum(column in NOTES for column in columns[left:])
    return TableView(title, columns, rows, left, brief=not folded and len(rows) <= BRIEF, folded=folded, notes=notes)


def whole_and_shares(
    result: StudyResult, title: str, columns: list[str], rows: list[list[str]], left: int
) -> list[TableView]:
    at, title = columns.index("share"), smoke_titled(result, title)
    whole, shares = [row for row in rows if row[at] == "1"], [row for row in rows if row[at] != "1"]
    folded = [plain_table(f"{title}: shares of the budget", columns, shares, left, folded=True)] if shares else []
    columns, *whole = ([*row[:at], *row[at + 1 :]] for row in (columns, *whole))
    return [plain_table(title, columns, whole, left - (at < left)), *folded]


def _half(mean: float | None, high: float | None) -> str:
    """Half the width of an interval."""
    return "–" if mean is None or high is None else f"{high - mean:.{PLACES}f}"


def _tested(result: StudyResult) -> list[str]:
    return [] if result.smoke else ["95 % interval", "p, uncorrected", "seeds"]


def _test(result: StudyResult, interval: str, p: float | None, n: int) -> list[str]:
    return [] if result.smoke else [interval, p_told(p), str(n)]


def smoke_titled(result: StudyResult, title: str) -> str:
    return f"{title} (smoke: one seed)" if result.smoke else title


def _unbroken(cell: str) -> str:
    """A name stays on one line, a sentence does not."""
    return cell.replace(" ", "\u00a0") if len(cell) <= NAME else cell


def _ended(finished: int, diverged: int, failed: int, missing: int) -> str:
    """Counts, those of nothing left out."""
    counts = {"finished": finished, "diverged": diverged, "failed": failed, "missing": missing}
    return ", ".join(f"{number} {status}" for status, number in counts.items() if number)
