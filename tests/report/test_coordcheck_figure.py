"""The figure of a coordinate check shows its rows."""

import pytest

from seedbed.report.preflight_figures import coordcheck_figure
from seedbed.report.preflight_rows import ChangeRow, CoordCheck
from seedbed.report.style import figure_svg

WIDTHS = (64, 128, 256, 512)


def check(names: list[str]) -> CoordCheck:
    rows = []
    for name in names:
        rows.append(ChangeRow(name, 1, (0.0,) * 4, None))
        rows.append(ChangeRow(name, 2, (1e-3, 1.1e-3, 0.9e-3, 1e-3), -0.004))
        rows.append(ChangeRow(name, 3, tuple(1e-3 * width for width in WIDTHS), 1.0))
    return CoordCheck("mup base_width=64", "adamw", 2e-3, "random ids", 128, 2, WIDTHS, tuple(rows))


def test_a_panel_an_activation_and_a_line_a_step():
    figure = coordcheck_figure(check(["embedded input", "layers.0.attn", "norm", "logits", "more"]))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [
        "embedded input",
        "layers.0.attn",
        "norm",
        "logits",
        "more",
    ]
    for axes in shown:
        assert [line.get_label() for line in axes.lines] == ["after step 2", "after step 3"]
        assert axes.lines[1].get_ydata()[-1] == pytest.approx(0.512)
        assert [text.get_text() for text in axes.texts] == ["slopes +0.00 +1.00"]
    figure.draw_without_rendering()
    labelled = [axes.get_title(loc="left") for axes in shown if any(t.get_text() for t in axes.get_xticklabels())]
    assert labelled == ["layers.0.attn", "norm", "logits", "more"]  # the lowest of each column
    assert [text.get_text() for text in shown[-1].get_xticklabels()] == ["64", "128", "256", "512"]
    svg = figure_svg(figure, "Coordinate check")
    assert "mup base_width=64" in svg
    assert "after step 3" in svg


def test_a_flat_line_looks_flat_and_nothing_lies_on_the_slopes():
    figure = coordcheck_figure(check(["logits"]))
    figure.draw_without_rendering()
    (axes,) = (axes for axes in figure.axes if axes.get_visible())
    low, high = axes.get_ylim()
    assert high / low >= 100
    top = axes.texts[0].get_window_extent().y1
    assert min(axes.transData.transform((64, y))[1] for line in axes.lines for y in line.get_ydata()) > top


def test_an_activation_that_never_moved_says_so():
    figure = coordcheck_figure(
        CoordCheck("x", "adamw", 1e-3, "random ids", 8, 1, (8, 16), (ChangeRow("logits", 1, (1.0, 1.0), 0.0),
        ChangeRow("norm", 1, (0.0, 0.0), None)))
    )  # fmt: skip
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["slopes +0.00", "no change"]
