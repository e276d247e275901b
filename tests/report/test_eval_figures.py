"""Scores as figures and as Markdown: what is drawn, in which order, and that nothing in a name is markup."""

import pytest

from seedbed.eval.evaluation import Evaluation, ModelRow
from seedbed.eval.paired import Paired
from seedbed.eval.scores import Score
from seedbed.measure.table import Rows
from seedbed.report.eval_figures import MOST_LINES, course_figure, course_lines, scores_figure
from seedbed.report.eval_page import eval_page
from seedbed.report.eval_rows import drawn, lines_of
from seedbed.report.markdown import page_markdown


def score(model, subset, metric, value, stderr=0.1, items=10) -> Score:
    share = metric == "accuracy"
    task = "minimal pairs" if share else "text"
    unit = {"accuracy": "share", "bits per byte": "bits/byte", "nats per token": "nats/token"}[metric]
    return Score(model, task, subset, metric, value, stderr, items, unit, "higher" if share else "lower")


def evaluation(models, scores, differences=(), steps=None) -> Evaluation:
    steps = steps or [None] * len(models)
    rows = Rows(ModelRow(*one, "identity", "tokenizer", {}) for one in zip(models, steps, strict=True))
    return Evaluation("title", rows, Rows(scores), Rows(differences), {}, {"text": ["2 documents."]}, [])


@pytest.fixture
def two() -> Evaluation:
    scores = [
        score(model, *rest)
        for model, more in (("a", 0.0), ("b|*", 0.5))
        for rest in (
            ("all", "bits per byte", 2 + more),
            ("all", "nats per token", 3 + more),
            ("domain: x", "bits per byte", 1 + more, None, 1),
            ("all", "accuracy", 0.5 + more / 5, 0.02),
            ("island", "accuracy", 0.25),
        )
    ]
    differences = [
        Paired("text", "all", "bits per byte", 0.5, 0.1, 0.3, 0.7, 1e-5, "paired t", 10, None, None),
        Paired("minimal pairs", "all", "accuracy", 0.1, 0.02, 0.06, 0.14, 0.001, "McNemar, exact", 10, 1, 2),
    ]
    return evaluation(["a", "b|*"], scores, differences)


def test_a_row_a_subset_and_a_panel_a_metric(two):
    lines = lines_of(two)
    assert [(label, [line.name for line in own]) for label, own in drawn(lines).items()] == [
        ("bits per byte, lower is better", ["text", "domain: x"]),
        ("accuracy (%), higher is better", ["minimal pairs", "island"]),
    ]
    figure = scores_figure(lines, ["a", "b|*"])
    text, text_gain, pairs, _ = figure.axes
    assert [label.get_text() for label in text.get_yticklabels()] == ["text (10)", "domain: x (1)"]
    dots = [line.get_xydata()[0].tolist() for line in text.lines if len(line.get_xdata()) == 1]
    assert dots == [[2, -0.17], [1, 0.83], [2.5, 0.17], [1.5, 1.17]]
    reach = next(line.get_xdata() for line in pairs.lines if len(line.get_xdata()) == 2)
    assert list(reach) == pytest.approx([50 - 3.92, 50 + 3.92])
    assert [line.get_marker() for line in text_gain.lines if len(line.get_xdata()) == 1] == ["s"]  # more bits: worse
    assert len(scores_figure(lines, ["a"]).axes) == 2


def test_intervals_of_shares_end_where_shares_do():
    lines = lines_of(evaluation(["a"], [score("a", "all", "accuracy", 0.5, 0.5, 2)]))
    (panel,) = scores_figure(lines, ["a"]).axes
    assert panel.get_xlim() == (-3, 103)
    near = lines_of(evaluation(["a"], [score("a", "all", "accuracy", 0.5, 0.02)]))
    (panel,) = scores_figure(near, ["a"]).axes
    low, high = panel.get_xlim()
    assert 40 < low < high < 60


def test_a_course_has_tasks_before_groups_and_groups_before_parts():
    subsets = ["island", *(f"domain: {n}" for n in range(9)), "language: en", "language: zh", "all"]
    scores = [
        score(f"step {step}", subset, "accuracy", 0.1 * step) for step in (1, 2) for subset in subsets
    ]  # fmt: skip
    lines = lines_of(evaluation(["step 1", "step 2"], scores, steps=[1, 2]))
    names = [line.subset for line in course_lines(lines)]
    assert names[:4] == ["all", "language: en", "language: zh", "domain: 0"]
    assert len(names) == MOST_LINES
    (panel,) = course_figure(lines, [10, 20]).axes
    assert panel.lines[0].get_xydata().tolist() == [[10, pytest.approx(10)], [20, pytest.approx(20)]]
    assert len(panel.collections) == 1  # a band for the whole task alone


@pytest.mark.usefixtures("undrawn")
def test_a_page_as_markdown(two):
    text = page_markdown(eval_page(two, {"command": "seedbed eval <b>"}))
    assert "| task | subset | metric | a | s.e. | b\\|\\* | s.e. | gain | 95 % interval | p | items |" in text
    assert "| text | all | bits per byte ↓ | 2.0000 | 0.10 | 2.5000 | 0.10 | +0.5000 | +0.3000 to +0.7000 |" in text
    assert "| minimal pairs | all | accuracy (%) ↑ | 50.00 | 2.0 | 60.00 | 2.0 | +10.00 | +6.00 to +14.00 |" in text
    assert "- command: seedbed eval \\<b\\>" in text
    assert "](figures/scores.svg)" in text
