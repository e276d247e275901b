"""The table of a suite: one number a task, as its source prints them; of two models with the gain."""

from collections.abc import Sequence

from seedbed.eval.suites import Suite
from seedbed.report.eval_rows import Line, shown, shown_error, shown_gain, shown_interval, shown_unit
from seedbed.report.render import count, number
from seedbed.report.sections import TableView


def suite_table(suite: Suite, lines: Sequence[Line], models: Sequence[str]) -> TableView:
    """A row a column of the source's table; ``lines`` are all that were measured."""
    by_key = {(line.task, line.subset, line.metric): line for line in lines}
    columns = ["benchmark", "metric"]
    for model in models:
        columns += [model, "s.e."]
    if len(models) == 2:
        columns += ["gain", "95 % interval", "p"]
    rows = []
    for column in suite.columns:
        line = by_key[column.task, "all", column.metric]
        cells = [column.label, *shown_unit([line])]
        for score in line.scores:
            cells += [shown(score), shown_error(score)]
        if len(models) == 2:
            one = line.difference
            cells += [shown_gain(None if one is None else one.difference, line.unit), shown_interval(line)]
            cells.append(number(None if one is None else one.p, 2))
        rows.append([*cells, count(max(score.items for score in line.scores if score is not None))])
    return TableView(suite.title, [*columns, "items"], rows, left=2)
