import math
import re
import warnings
from dataclasses import replace

import matplotlib as mpl
import pytest

from seedbed.measure.spectra import MatrixStats
from seedbed.report.figures import (
    components_figure,
    depth_figure,
    loss_figure,
    rate_figure,
    sink_figure,
    speed_figure,
    thinned,
)
from seedbed.report.style import figure_svg, log_scale, panels, style


def test_curves_show_the_rows(metrics):
    (axes,) = loss_figure(metrics, vocab_size=1000).axes
    train, heldout, uniform = axes.get_lines()
    assert list(train.get_ydata()) == [row["loss"] for row in metrics if row["kind"] == "train"]
    assert list(heldout.get_xdata()) == [row["step"] for row in metrics if row["kind"] == "eval"]
    assert uniform.get_ydata()[0] == pytest.approx(math.log(1000))
    assert axes.get_ylabel() == "loss (nats / token)"
    assert list(rate_figure(metrics).axes[0].get_lines()[0].get_ydata()) == [
        row["lr"] for row in metrics if row["kind"] == "train"
    ]
    assert speed_figure(metrics).axes[0].get_ylim()[0] == 0


def test_long_curves_are_thinned_by_means():
    rows = [{"step": step, "loss": float(step % 2)} for step in range(1, 10_001)]
    steps, losses = thinned(rows, "loss", most=500)
    assert len(steps) == 500
    assert set(losses) == {0.5}
    assert (steps[0], steps[-1]) == (10.5, 9990.5)
    assert thinned(rows[:3], "loss") == ([1, 2, 3], [1, 0, 1])
    assert thinned([], "loss") == ([], [])


def test_components_show_means_before_and_after(weights):
    before, after = weights
    figure = components_figure(before, after)
    ranks = figure.axes[0]
    assert [label.get_text() for label in ranks.get_yticklabels()][:3] == ["embed", "attn.q", "attn.k"]
    place = 1  # attn.q
    marks = [line for line in ranks.get_lines() if len(line.get_xdata()) and set(line.get_ydata()) == {place}]
    for rows, face, size in ((before, "white", 9), (after, "#0072B2", 5.5)):
        mean = sum(row.stats.stable_rank for row in rows if row.role == "attn.q") / 4
        (mark,) = [line for line in marks if line.get_markersize() == size and line.get_markerfacecolor() == face]
        assert mark.get_xdata()[0] == pytest.approx(mean)


def test_a_matrix_without_a_number_has_no_mark(weights):
    broken = [replace(row, stats=MatrixStats(row.stats.shape, problem="all NaN"), gaussian=None) for row in weights[1]]
    figure_svg(components_figure(weights[0], broken))
    figure_svg(components_figure([], weights[1]))
    (panel, *_) = depth_figure(weights[0], broken).axes
    assert [len(line.get_xdata()) for line in panel.get_lines()] == [4, 0]


def test_sinks_show_layers_heads_and_baseline(sinks):
    (axes,) = sink_figure(*sinks).axes
    before, after, heads, uniform = axes.get_lines()
    assert list(before.get_ydata()) == sinks[0].layers
    assert list(after.get_ydata()) == sinks[1].layers
    assert len(heads.get_ydata()) == 16
    assert uniform.get_ydata()[0] == sinks[1].uniform
    assert axes.get_ylim()[1] > max(score for layer in sinks[1].scores for score in layer)


def test_flat_sinks_fill_their_axis(sinks):
    flat = replace(sinks[0], scores=((0.02, 0.021), (0.022, 0.02)), uniform=0.02)
    (axes,) = sink_figure(flat, flat).axes
    assert 0.022 < axes.get_ylim()[1] < 0.03


def test_depth_profiles_stay_inside_their_panels(weights):
    for panel in depth_figure(*weights).axes:
        assert max(max(line.get_ydata()) for line in panel.get_lines()) < 0.95 * panel.get_ylim()[1]


def within(axis, place: float) -> bool:
    low, high = sorted(axis.get_view_interval())
    return low <= place <= high


@pytest.mark.parametrize("spread", [1.01, 1.5, 8, 40, 1e4])
def test_logarithmic_axes_have_labels_however_short(spread):
    with style():
        figure, (axes,) = panels(1, 1, 3, 2)
        axes.plot([0.013, 0.013 * spread], [0, 1])
        log_scale(axes, "x")
        shown = [place for place in axes.xaxis.get_majorticklocs() if within(axes.xaxis, place)]
        assert 2 <= len(shown) <= 8
        assert overlapping(figure) == []


def overlapping(figure) -> list[tuple[str, str]]:
    """Pairs of texts of a figure whose boxes overlap."""
    figure.draw_without_rendering()
    axis = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    unseen = {tick.label1 for one in axis for tick in one.get_major_ticks() if not within(one, tick.get_loc())}
    boxes = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(mpl.text.Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen
        if text.axes is None or text.axes.get_visible()
    ]
    return [
        (a, b)
        for i, (a, box) in enumerate(boxes)
        for b, other in boxes[i + 1 :]
        if box.x0 < other.x1 - 1 and other.x0 < box.x1 - 1 and box.y0 < other.y1 - 1 and other.y0 < box.y1 - 1
    ]


def test_no_text_covers_another(metrics, weights, sinks):
    for figure in (
        loss_figure(metrics, 4096),
        rate_figure(metrics),
        speed_figure(metrics),
        components_figure(*weights),
        depth_figure(*weights),
        sink_figure(*sinks),
    ):
        assert overlapping(figure) == []
        assert all(axes.get_legend() is None for axes in figure.axes)  # legends stand outside, off the curves


def test_svg_is_deterministic_and_refers_to_nothing_outside(metrics):
    one, two = (figure_svg(loss_figure(metrics, 4096), 'loss "<&') for _ in range(2))
    assert one == two
    assert one.startswith('<svg role="img" aria-label="loss &quot;&lt;&amp;"')
    assert not re.search(r'(src|href)="(?!#)', one)
    assert "<metadata" not in one
    ids = re.findall(r'\bid="([^"]+)"', one)
    assert not [name for name in ids if re.fullmatch(r"[a-z0-9]+_\d+", name)]
    for target in re.findall(r'(?:href="|url\()#([^")]+)', one):
        assert target in ids


def test_chinese_text_needs_no_font_and_gives_no_warning():
    with warnings.catch_warnings(), style():
        warnings.simplefilter("error")
        figure, (axes,) = panels(1, 1, 4, 2)
        axes.set_title("种子 𠮷")
        assert "种子 𠮷" in figure_svg(figure)


def test_style_leaves_matplotlib_as_it_was(metrics):
    before = dict(mpl.rcParams)
    figure_svg(loss_figure(metrics))
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(("values", "scale"), [([0, 0], "linear"), ([], "linear"), ([-1, 0.5], "log")])
def test_an_axis_without_a_positive_value_stays_linear(values, scale):
    with warnings.catch_warnings(), style():
        warnings.simplefilter("error")
        _, (axes, _) = panels(1, 2, 4, 2)
        axes.plot(range(len(values)), values)
        log_scale(axes, "y")
        figure_svg(axes.figure)
    assert axes.get_yscale() == scale
