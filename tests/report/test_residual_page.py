"""Page and figures of the residual analysis, from rows."""

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from seedbed.measure.table import Rows
from seedbed.report.residual_figures import branches_figure, masking_figure, steps_figure, stream_figure
from seedbed.report.residual_page import residual_page
from seedbed.report.residual_rows import Member, NormRow, ResidualResult, StreamRow
from seedbed.report.sections import page_html

ROW = StreamRow("a", None, 0, "others", 9, 4.0, 2.0, 3.0, 5.0, 6.0, 0.5, 0.25, -0.5, 0.75, 0.125)
NORM = NormRow("a", None, "norm", None, "stream", "others", 9, False, 1e-6, 4.0, 0.25, 0.5)
MEMBER = Member("a", None, "at/a", 2, 4, 1, 10, 1, 0, "layers.*.attn", "layers.*.mlp", "abc")


def rows(model: str = "a", step: int | None = None, **changed: Any) -> list[StreamRow]:
    of_layers = [
        replace(ROW, model=model, step=step, layer=layer, tokens=tokens, count=count, **changed)
        for layer in range(-1, 2)
        for tokens, count in (("others", 9), ("first", 1))
    ]
    none = {"attn_ratio": None, "attn_cosine": None, "mlp_ratio": None, "mlp_cosine": None}
    return [replace(row, flow=0.0, **none) if row.layer < 0 else row for row in of_layers]


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
    assert of_layers[0] == ["e", "4.00", "2.00", "3.00", "5.00", "6.00", *"–––––"]
    assert of_layers[2] == ["1", "4.00", "2.00", "3.00", "5.00", "6.00", "0.500", "0.250", "−0.500", "0.750", "0.125"]


def test_what_is_not_measured_is_said_and_not_drawn():
    none: Any = {"attn_ratio": None, "attn_cosine": None, "mlp_ratio": None, "mlp_cosine": None}
    page = residual_page(result(rows(**none), MEMBER, problems=("a: branches not measured in layer 0, 1: why",)), {})
    assert page.sections[0].problems == ["a: branches not measured in layer 0, 1: why"]
    assert "branches_others" not in [picture.name for picture in page.pictures]
    assert "Not measured in any layer" in page_html(page)


def test_steps_have_a_section_of_their_own_and_the_last_one_leads():
    members = [replace(MEMBER, step=step) for step in (0, 10)]
    stream = [*rows(step=0), *rows(step=10, norm=8.0, rms=4.0)]
    page = residual_page(result(stream, *members), {})
    assert "During training: a" in [section.title for section in page.sections]
    assert page.sections[-1].tables[0].rows[0][1] == "8.00"


def test_eight_models_are_told_apart():
    names = [f"model {place}" for place in range(8)]
    figure = stream_figure([row for name in names for row in rows(name)], names)
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 8
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names


def points(figure: Figure, panel: int, line: int = 0) -> list[list[float]]:
    """[x, y] of each point of a curve."""
    return figure.axes[panel].lines[line].get_xydata().tolist()  # pyright: ignore


def test_curves_are_the_rows():
    figure = branches_figure(rows(), ["a"], "others")
    for panel, value in enumerate((0.25, 0.75, -0.5, 0.125)):
        assert points(figure, panel) == [[0, value], [1, value]]
    in_layer = [replace(NORM, norm=f"n{place}", layer=0) for place in range(2)]
    masking = masking_figure([*in_layer, NORM], ["a"])
    assert points(masking, 0) == [[0, 25], [0.5, 25], [1, 25]]
    assert points(masking, 1) == [[0, 50], [0.5, 50], [1, 50]]


@pytest.mark.parametrize("steps", [[0], [0, 10, 20]])
def test_a_line_a_step(steps):
    figure = steps_figure([row for step in steps for row in rows(step=step)])
    assert len(figure.axes[0].lines) == len(steps)
    assert points(figure, 0) == [[layer, 2.0] for layer in (-1, 0, 1)]
