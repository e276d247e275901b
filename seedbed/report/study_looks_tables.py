"""Tables of what a study looked at in its models."""

from collections.abc import Sequence
from typing import Any

from seedbed.report.render import number
from seedbed.report.sections import TableView
from seedbed.report.study_rows import StudyResult
from seedbed.report.study_tables import plain_table, span
from seedbed.report.study_trend_rows import LookRow


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
    return plain_table(title, columns, lines, left=3, folded=folded)
