"""Page and figures of the residual analysis, from rows."""

import math
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from seedbed.measure.table import Rows
from seedbed.report.residual_figures import branches_figure, masking_figure, steps_figure, stream_figure
from seedbed.report.residual_page import residual_page
from seedbed.report.residual_rows import Member, NormRow, ResidualResult, StreamRow
from seedbed.report.residual_tables import summary_table
from seedbed.report.sections import page_html

ROW = StreamRow(
    "a", None, 0, "others", 9, 4.0, 2.0, 3.0, 5.0, 6.0, 0.5, 0.25, -0.5, 0.75, 0.125,
    norm_median=2.0, rms_median=1.0, variance_median=1.5, largest_median=2.5, massive_median=3.0, massive_most=90.0,
    flow_median=0.4, attn_ratio_median=0.2, mlp_ratio_median=0.7,
)  # fmt: skip
NORM = NormRow("a", None, "norm", None, "stream", "others", 9, False, 1e-6, 4.0, 0.25, 0.5)
MEMBER = Member("a", None, "at/a", 2, 4, 1, 10, 1, 0, "layers.*.attn", "layers.*.mlp", "abc")
NONE: Any = dict.fromkeys(
    ("attn_ratio", "attn_cosine", "mlp_ratio", "mlp_cosine", "attn_ratio_median", "mlp_ratio_median")
)


def rows(model: str = "a", step: int | None = None, **changed: Any) -> list[StreamRow]:
    of_layers = [
        replace(ROW, model=model, step=step, layer=layer, tokens=tokens, count=count, **changed)
        for layer in range(-1, 2)
        for tokens, count in (("others", 9), ("first", 1))
    ]
    return [replace(row, flow=0.0, flow_median=0.0, **NONE) if row.layer < 0 else row for row in of_layers]


def result(stream: list[StreamRow], *members: Member, problems: tuple[str, ...] = ()) -> ResidualResult:
    return ResidualResult(Rows(members), Rows(stream), Rows([NORM]), "text.jsonl", 64, list(problems))


def test_the_page_says_what_and_how():
    page = residual_page(
        result(rows(), MEMBER), {"command": "seedbed analyze residual at/a", "at/a: weights": "SHA-256 abc"}
    )
    html = page_html(page)
    for text in ("on text.jsonl: 10 tokens in 1 documents", "layers.*.attn", "seedbed analyze residual at/a",
                 "SHA-256 abc", "nothing here has an error bar", "a, 9 tokens after the first"):  # fmt: skip
        assert text in html
    assert [picture.name for picture in page.pictures] == ["stream", "branches_others", "branches_first", "masking"]
    of_layers = page.sections[-1].tables[0].rows
    sizes = ["1.00", "2.00", "1.50", "2.50", "3.00", "6.00", "90.0"]
    assert of_layers[0] == ["e", *sizes, *"–––––"]
    assert of_layers[2] == ["1", *sizes, "0.400", "0.200", "−0.500", "0.700", "0.125"]


def test_what_is_not_measured_is_said_and_not_drawn():
    page = residual_page(result(rows(**NONE), MEMBER, problems=("a: branches not measured in layer 0, 1: why",)), {})
    assert page.sections[0].problems == ["a: branches not measured in layer 0, 1: why"]
    assert "branches_others" not in [picture.name for picture in page.pictures]
    assert "Not measured in any layer" in page_html(page)


def test_the_terminal_has_a_summary_over_the_layers():
    stream = [replace(row, massive_median=3.0 + row.layer) for row in rows()]
    page = residual_page(result(stream, MEMBER), {})
    brief = [view for section in page.sections for view in section.tables if view.brief]
    assert [view.title.partition(":")[0] for view in brief] == ["What was measured", "Over the layers"]
    assert brief[1].rows[:3] == [
        ["rms", "a", "1.00", "1.00", "1.00", "0", "1.00", "0", "1.00"],
        ["max/median", "a", "2.00", "3.00", "3.00", "0", "4.00", "1", "4.00"],
        ["flow", "a", "–", "0.400", "0.400", "0", "0.400", "0", "0.400"],
    ]


def test_of_many_models_the_summary_has_fewer_measures_and_of_a_nan_none():
    names = [f"model {place}" for place in range(8)]
    stream = [row for name in names for row in rows(name)]
    assert len(summary_table([row for row in stream if row.tokens == "others"], names, brief=True).rows) == 24
    broken = [replace(ROW, layer=layer, flow_median=math.nan if layer else 2.0) for layer in range(2)]
    (flow,) = (cells for cells in summary_table(broken, ["a"], brief=True).rows if cells[0] == "flow")
    assert flow[2:] == ["–", "2.00", "2.00", "0", "2.00", "0", "2.00"]


def test_steps_come_first_on_the_page_and_in_the_terminal():
    members = [replace(MEMBER, step=step) for step in range(61)]
    stream = [row for step in range(61) for row in rows(step=step, rms_median=float(1 + step), rms=99.0)]
    page = residual_page(result(stream, *members), {})
    assert [section.title for section in page.sections[:3]] == [
        "Models and tokens", "During training: a", "Size of the stream",
    ]  # fmt: skip
    (brief,) = [view for section in page.sections for view in section.tables if view.brief]
    assert brief.title.startswith("a, 24 of 61 steps")
    assert (brief.rows[0][:3], brief.rows[-1][:3]) == (["0", "1.00", "1.00"], ["60", "61.0", "61.0"])
    assert brief.rows[0][3:] == ["3.00", "0.400", "0.200 to 0.200", "0.700 to 0.700"]
    assert page.sections[2].paragraphs == ["Here and below: the last step of each run."]
    assert page.sections[-1].tables[0].rows[0][1:3] == ["61.0", "99.0"]


def test_eight_models_are_told_apart():
    names = [f"model {place}" for place in range(8)]
    figure = stream_figure([row for name in names for row in rows(name)], names)
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[::2]}
    assert len(looks) == 8
    assert {line.get_linestyle() for line in figure.axes[0].lines[1::2]} == {":"}
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told == [*names, "mean over tokens; lines: medians"]


def points(figure: Figure, panel: int, line: int = 0) -> list[list[float]]:
    """[x, y] of each point of a curve."""
    return figure.axes[panel].lines[line].get_xydata().tolist()  # pyright: ignore


def test_curves_are_the_rows():
    figure = branches_figure(rows(), ["a"], "others")
    for panel, value in enumerate((0.2, 0.7, -0.5, 0.125)):
        assert points(figure, panel) == [[0, value], [1, value]]
    assert points(figure, 0, line=1) == [[0, 0.25], [1, 0.25]]  # the mean beside the median
    assert len(figure.axes[2].lines) == 2  # a cosine, and zero
    sizes = stream_figure(rows(), ["a"])
    assert points(sizes, 6) == [[0, 0.4], [1, 0.4]]  # no flow of the embedded input
    in_layer = [replace(NORM, norm=f"n{place}", layer=0) for place in range(2)]
    masking = masking_figure([*in_layer, NORM], ["a"])
    assert points(masking, 0) == [[0, 25], [0.5, 25], [1, 25]]
    assert points(masking, 1) == [[0, 50], [0.5, 50], [1, 50]]


@pytest.mark.parametrize("steps", [[0], [0, 10, 20]])
def test_a_line_a_step(steps):
    figure = steps_figure([row for step in steps for row in rows(step=step)])
    assert len(figure.axes[0].lines) == len(steps)
    assert points(figure, 0) == [[layer, 1.0] for layer in (-1, 0, 1)]
