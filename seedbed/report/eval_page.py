"""The page of an evaluation: scores of one model, of two side by side, or over the steps of a run."""

from collections.abc import Mapping, Sequence

from seedbed.eval.evaluation import Evaluation
from seedbed.eval.minimal_pairs import ACCURACY
from seedbed.eval.perplexity import BITS, NATS, PERPLEXITY
from seedbed.eval.scores import ALL
from seedbed.eval.suites import Suite
from seedbed.report.eval_figures import MOST_LINES, course_figure, scores_figure
from seedbed.report.eval_rows import (
    Line,
    drawn,
    lines_of,
    shown,
    shown_error,
    shown_gain,
    shown_interval,
    shown_unit,
)  # fmt: skip
from seedbed.report.harness_metrics import harness_definitions
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.suite_table import suite_table

_METRICS = {
    BITS: "Summed loss of the predicted tokens / ln 2 / raw UTF-8 bytes of the text that they stand for. It compares "
    "between tokenizers.",
    NATS: "Summed loss of the predicted tokens / their number: a mean over tokens, not over documents. It depends on "
    "the tokenizer.",
    PERPLEXITY: "exp of the nats per token.",
    ACCURACY: "Of minimal pairs: the share in which the acceptable sentence has the higher summed log-probability, "
    "first word included; equal ones count ½. Over all, and over a field, each paradigm weighs the same.",
}
_ERRORS = {
    "s.e.": "Standard error over items (documents, pairs, questions), which count as independent. Of a mean over "
    "tokens or bytes it is that of the linearised ratio estimator over documents. Paradigms and subjects are a "
    "fixed part of the test: the spread between them is none of it. Intervals in figures are 1.96 standard errors to "
    "each side, of shares as far as shares go.",
}
_PAIRED = {
    "Gain": "The second model's score minus the first's. Below 0 it is better where lower is better (↓).",
    "95 % interval, p": "Of the gain, item by item on the same items: a t interval by the standard error of the "
    "differences; p, two-sided, by McNemar's exact test where items are right or wrong and weigh the same, else by the "
    "paired t test. Each row by itself: of twenty rows without a difference one has p < 0.05.",
}
LEAD = (
    "Standard errors and intervals are over items, for these weights; no number has an error bar over training seeds."
)


def eval_page(result: Evaluation, provenance: Mapping[str, str], suite: Suite | None = None) -> Page:
    """``provenance`` has the files, versions and the command; the table of ``suite``, whose tasks were asked, comes
    first."""
    lines, models = lines_of(result), [row.name for row in result.models]
    is_course = any(row.step is not None for row in result.models)
    views = _course_tables(result, lines) if is_course else _tables(lines, models)
    if suite is not None and not is_course:
        views = [suite_table(suite, lines, models), *views]
    read = [f"{question}: {line}" for question, told in result.told.items() for line in told]
    metrics = {line.metric for line in lines}
    return Page(
        title=f"Scores over the steps of {result.title}" if is_course else f"Scores of {result.title}",
        lead=LEAD,
        sections=[
            Section("Scores", pictures=[_picture(result, lines, is_course)], tables=views, problems=result.problems),
            Section("What was read", read),
        ],
        definitions={
            **{name: told for name, told in _METRICS.items() if name in metrics},
            **harness_definitions(metrics),
            **_ERRORS,
            **(_PAIRED if result.differences else {}),
        },
        provenance=provenance,
        tiles=_tiles(lines, models),
    )


def _picture(result: Evaluation, lines: Sequence[Line], is_course: bool) -> Picture:
    models = [row.name for row in result.models]
    if is_course:
        more = sum(max(0, len(own) - MOST_LINES) for own in drawn(lines).values())
        told = f" {count(more)} more stand in scores.csv." if more else ""
        figure = course_figure(lines, [row.step or 0 for row in result.models])
        caption = f"Scores over the steps of the run; bands, of whole tasks, are 95 % intervals over items.{told}"
        return Picture("scores", figure, caption, "Scores over the steps of a run, a panel a metric.")
    caption = "Dots with 95 % intervals over items; in brackets how many items; hollow: none to tell the error by."
    if len(models) == 2:
        caption += f" Right: {models[1]} − {models[0]}, item by item; green triangles: better, violet squares: worse."
    return Picture("scores", scores_figure(lines, models), caption, "Scores with intervals by task and group.")


def _tables(lines: Sequence[Line], models: Sequence[str]) -> list[TableView]:
    """Tasks and groups; their details behind a click."""
    details = [line for line in lines if line.is_detail]
    found = [_table("Scores", [line for line in lines if not line.is_detail], models)]
    return [*found, *([_table("Scores in detail", details, models, brief=False)] if details else [])]


def _table(title: str, lines: Sequence[Line], models: Sequence[str], brief: bool = True) -> TableView:
    columns = ["task", "subset", "metric"]
    for model in models:
        columns += [model, "s.e."]
    if len(models) == 2:
        columns += ["gain", "95 % interval", "p"]
    rows = []
    for line, metric in zip(lines, shown_unit(lines), strict=True):
        cells = [line.task, line.subset, metric]
        for score in line.scores:
            cells += [shown(score), shown_error(score)]
        if len(models) == 2:
            one = line.difference
            gain = (None, None) if one is None else (one.difference, one.p)
            cells += [shown_gain(gain[0], line.unit), shown_interval(line), number(gain[1], 2)]
        rows.append([*cells, count(max(score.items for score in line.scores if score is not None))])
    return TableView(title, [*columns, "items"], rows, left=3, brief=brief, folded=not brief)


def _course_tables(result: Evaluation, lines: Sequence[Line]) -> list[TableView]:
    """A row a step, a column a task and metric; groups and parts stand in scores.csv."""
    wholes = [line for line in lines if line.subset == ALL]
    columns = ["step"]
    for line, metric in zip(wholes, shown_unit(wholes), strict=True):
        columns += [f"{line.task}: {metric}", "s.e."]
    rows = []
    for place, model in enumerate(result.models):
        cells = [str(model.step)]
        for line in wholes:
            cells += [shown(line.scores[place]), shown_error(line.scores[place])]
        rows.append(cells)
    return [TableView("Scores by step", columns, rows, left=0)]


def _tiles(lines: Sequence[Line], models: Sequence[str]) -> dict[str, str]:
    """Bits per byte of all texts, and the accuracy of each task; of a course, at its last step."""
    last = len(models) - 1
    places = [last] if last > 1 else range(len(models))
    found = {}
    for line, metric in zip(lines, shown_unit(lines), strict=True):
        if line.subset == ALL and line.metric in (BITS, ACCURACY):
            found |= {f"{line.task}: {metric}, {models[place]}": shown(line.scores[place]) for place in places}
    return found
