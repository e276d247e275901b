"""What more tokens would do, as far as a study can tell: how fast losses still fall, and differences change."""

from operator import itemgetter

from seedbed.report.render import signed
from seedbed.report.sections import TableView
from seedbed.report.study_rows import LossRow, StudyResult
from seedbed.report.study_tables import PLACES, plain_table


def still_falling(result: StudyResult) -> list[str]:
    """How steep the losses of the whole budget are at its end; nothing where no run tells."""
    rows = [(row.end_slope, row) for row in result.losses if row.share == 1.0 and row.end_slope is not None]
    if not rows:
        return []
    by = "from the next smaller share of the budget" if len(result.shares) > 1 else "along the last half of the runs"
    ends = min(rows, key=itemgetter(0)), max(rows, key=itemgetter(0))
    told = " to ".join(dict.fromkeys(f"{signed(slope, PLACES)} ({_place(row)})" for slope, row in ends))
    return [f"At the end the loss changes with a doubling of tokens, {by}, by {told} nats per token."]


def change_table(result: StudyResult) -> TableView | None:
    """How differences change with a doubling of tokens: a line a level, a column a size."""
    rows = {(row.level, row.others, row.at): row for row in result.slopes if row.over == "tokens"}
    if not rows:
        return None
    lines = []
    for level, others in dict.fromkeys((level, others) for level, others, _ in rows):
        line = [level, others or "–"]
        for size in result.sizes:
            row = rows.get((level, others, size))
            half = "" if row is None or row.high is None else f" ± {row.high - row.mean:.{PLACES}f}"
            line.append("–" if row is None else signed(row.mean, PLACES) + half)
        lines.append(line)
    interval = "" if result.smoke else ", ± 95 % interval, uncorrected"
    title = f"Change of that difference with a doubling of tokens, nats per token{interval}"
    return plain_table(title, ["level", "among", *result.sizes], lines, 2)


def _place(row: LossRow) -> str:
    return row.arm if row.size == "base" else f"{row.arm}, {row.size}"
