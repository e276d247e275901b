"""Tables of the residual analysis, for page and terminal."""

import math
from collections.abc import Sequence

from seedbed.measure.masking import USUAL_EPS
from seedbed.measure.trajectory import thinned
from seedbed.report.render import count, number
from seedbed.report.residual_rows import Member, NormRow, ResidualResult, StreamRow
from seedbed.report.sections import TableView
from seedbed.report.style import short

LINES = 24
"""Of a table that sums up, so that all fits on a screen."""
SUMMED_UP = {
    "rms_median": "rms",
    "massive_median": "max/median",
    "flow_median": "flow",
    "attn_ratio_median": "attention ratio",
    "mlp_ratio_median": "MLP ratio",
}


def members_table(members: Sequence[Member]) -> TableView:
    """What was measured, a line a model and step."""
    columns = ["model", "step", "attention adds", "MLP adds", "layers", "width", "documents", "tokens", "first tokens",
               "cut off"]  # fmt: skip
    rows = [
        [
            m.model, "–" if m.step is None else str(m.step), m.attn, m.mlp,
            *map(count, (m.layers, m.width, m.documents, m.tokens, m.firsts, m.cut)),
        ]
        for m in members
    ]  # fmt: skip
    return TableView("What was measured", columns, rows, left=4, brief=len(rows) <= 8, folded=len(rows) > 8)


def summary_table(rows: Sequence[StreamRow], models: Sequence[str], brief: bool) -> TableView:
    """First, lowest, highest and last layer of each model, medians over tokens; of many models fewer measures."""
    columns = ["measure", "model", "e", "layer 0", "lowest", "in layer", "highest", "in layer", "last layer"]
    cells = []
    for field, told in list(SUMMED_UP.items())[: max(1, LINES // len(models))]:
        for model in models:
            found = _known([row for row in rows if row.model == model], field)
            embedded, last = found.pop(-1, None), found.get(max(found, default=0))
            if found:
                low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
                numbers = number(found[low]), str(low), number(found[high]), str(high), number(last)
                of_input = None if field == "flow_median" else embedded
                cells.append([told, model, number(of_input), number(found.get(0)), *numbers])
    return TableView("Over the layers: medians over tokens after the first", columns, cells, left=2, brief=brief)


def steps_table(result: ResidualResult, model: str) -> TableView:
    """One run over its steps, of many some of them: so few that those of all runs fit on a screen."""
    steps = result.steps(model)
    shown = thinned(steps, max(3, LINES // len(result.measured_over_steps())))
    columns = ["step", "rms of e", "of the last layer", "max/median, highest", "flow, last layer", "attention ratio",
               "MLP ratio"]  # fmt: skip
    cells = []
    for step in shown:
        own = [row for row in result.stream if (row.model, row.step, row.tokens) == (model, step, "others")]
        massive = max(_known(own, "massive_median").values(), default=None)
        sizes = own[0].rms_median, own[-1].rms_median, massive, own[-1].flow_median
        cells.append([str(step), *map(number, sizes), _span(own, "attn_ratio_median"), _span(own, "mlp_ratio_median")])
    some = f"{len(shown)} of {len(steps)} steps" if len(shown) < len(steps) else f"{len(steps)} steps"
    return TableView(f"{model}, {some}: medians over tokens after the first, ratios over the layers", columns, cells)


def _known(rows: Sequence[StreamRow], field: str) -> dict[int, float]:
    """By layer, what is a number."""
    found = {row.layer: getattr(row, field) for row in rows}
    return {layer: value for layer, value in found.items() if value is not None and not math.isnan(value)}


def _span(rows: Sequence[StreamRow], field: str) -> str:
    known = _known(rows, field).values()
    return f"{number(min(known))} to {number(max(known))}" if known else "–"


def layer_table(title: str, rows: Sequence[StreamRow], folded: bool) -> TableView:
    """A line a layer."""
    columns = ["layer", "rms", "mean", "variance", "max |h|", "max/median", "mean", "greatest", "flow",
               "attention ratio", "cosine", "MLP ratio", "cosine"]  # fmt: skip
    cells = [
        [
            "e" if r.layer < 0 else str(r.layer),
            *map(number, (r.rms_median, r.rms, r.variance_median, r.largest_median, r.massive_median, r.massive)),
            *map(number, (r.massive_most, None if r.layer < 0 else r.flow_median)),
            *map(number, (r.attn_ratio_median, r.attn_cosine, r.mlp_ratio_median, r.mlp_cosine)),
        ]
        for r in rows
    ]
    return TableView(f"{title}: medians, and means where it says so and of cosines", columns, cells, brief=False,
                     folded=folded)  # fmt: skip


def norm_table(title: str, rows: Sequence[NormRow]) -> TableView:
    """A line a norm: means over tokens."""
    reads = {"stream": "stream", "branch": "branch", "attn": "within attention", "mlp": "within MLP"}
    columns = ["norm", "reads", "ε", "σ²", "masked at ε, %", f"at {short(USUAL_EPS)}, %"]
    cells = [
        [r.norm, reads[r.reads], short(r.eps), *map(number, (r.second_moment, 100 * r.masking, 100 * r.masking_usual))]
        for r in rows
    ]
    return TableView(title, columns, cells, left=2, brief=False, folded=True)
