"""Trajectories of weights over the steps of runs, as figures: rows in, a matplotlib Figure out."""

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from seedbed.facts.fact import in_order
from seedbed.measure.trajectory import MEASURES, Reference, TrajectoryRow, curve, grouped
from seedbed.report.measures import NAMES
from seedbed.report.style import ARMS, GREY, INK, WIDTH, log_scale, panels, style

LOGARITHMIC = ("stable_rank", "std")  # they move over decades
LINES: tuple[Literal["-"], Literal["--"]] = ("-", "--")  # of the runs after the fourth, whose colours repeat
COLUMNS = 4
LEGEND_WIDTH = 150  # characters that fit beside each other over a figure, with 8 for each line and its distance
Over = Literal["step", "tokens"]


def measure_figure(
    rows: Sequence[TrajectoryRow], references: Sequence[Reference], measure: str, over: Over = "step"
) -> Figure:
    """One measure, all layers together: a panel a component, a line a run (mean over its layers) with the range over
    its layers as a band, and the value of Gaussian matrices of these shapes."""
    components = in_order(row.component for row in rows)
    columns = min(COLUMNS, len(components))
    lines = math.ceil(len(components) / columns)
    runs = list(dict.fromkeys(row.run for row in rows))
    with style():
        figure, axes = panels(lines, columns, WIDTH, 1.1 + 1.75 * lines, sharex=True, sharey=True)
        for panel, component in zip(axes, components, strict=False):
            _panel(panel, [row for row in rows if row.component == component], references, runs, measure, over)
            panel.set_title(component)
        _scale(axes[0], measure, over)
        for panel in axes[len(components) :]:
            panel.set_visible(False)
        for panel in axes[: len(components)][-columns:]:  # the lowest of each column
            panel.tick_params(labelbottom=True)
        figure.supylabel(NAMES[measure], fontsize=10)
        _finish(figure, runs, over, band=any(row.layer is not None for row in rows), gaussian=measure != "std")
        return figure


def layer_figure(
    rows: Sequence[TrajectoryRow], references: Sequence[Reference], layer: int, over: Over = "step"
) -> Figure:
    """One layer: a line of panels a component, a column a measure, a line a run."""
    own = [row for row in rows if row.layer == layer]
    components, fields = in_order(row.component for row in own), [m for m in MEASURES if m != "er99"]
    runs = list(dict.fromkeys(row.run for row in rows))
    with style():
        height = 1.0 + 1.25 * len(components)
        figure, axes = panels(len(components), len(fields), WIDTH, height, sharex=True, sharey="col")
        for place, component in enumerate(components):
            for column, measure in enumerate(fields):
                panel = axes[place * len(fields) + column]
                _panel(panel, [row for row in own if row.component == component], references, runs, measure, over)
                if place == 0:
                    panel.set_title(NAMES[measure])
            axes[place * len(fields)].set_ylabel(component, fontweight="bold")
        for panel, measure in zip(axes, fields, strict=False):
            _scale(panel, measure, over)
        _finish(figure, runs, over, band=False, gaussian=True)
        return figure


def _panel(
    axes: Axes,
    rows: Sequence[TrajectoryRow],
    references: Sequence[Reference],
    runs: Sequence[str],
    measure: str,
    over: Over,
) -> None:
    """The lines of one component; a Gaussian's value where it is known, once for runs that share it."""
    for (run, _), own in grouped(rows).items():
        points, _ = curve(own, measure)
        color, line = _look(runs.index(run))
        xs = [point.step if over == "step" else point.tokens for point in points]
        if any(point.low < point.high for point in points):
            low, high = [point.low for point in points], [point.high for point in points]
            axes.fill_between(xs, low, high, color=color, alpha=0.13, linewidth=0)
        axes.plot(
            xs, [point.mean for point in points], line, color=color, linewidth=1.5, marker="." if len(xs) == 1 else ""
        )
    components = {row.component for row in rows}
    levels = {getattr(one, measure, None) for one in references if one.component in components}
    for level in sorted(round(level, 9) for level in levels if level is not None):
        axes.axhline(level, color=INK, linewidth=0.9, linestyle=":", zorder=1.5)


def _scale(axes: Axes, measure: str, over: Over) -> None:
    """The scales of all panels that share those of ``axes``, once they are drawn."""
    axes.margins(x=0.02)
    if measure in LOGARITHMIC:
        log_scale(axes, "y", 6)
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    if over == "tokens":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _look(place: int) -> tuple[str, Literal["-", "--"]]:
    return ARMS[place % len(ARMS)][0], LINES[place // len(ARMS)]


def _finish(figure: Figure, runs: Sequence[str], over: Over, band: bool, gaussian: bool) -> None:
    """The common axis and the legend."""
    figure.supxlabel("step" if over == "step" else "supervised training tokens", fontsize=10)
    handles: list[Artist] = []
    for place, run in enumerate(runs):
        color, line = _look(place)
        handles.append(Line2D([], [], color=color, linestyle=line, label=run))
    if band:
        handles.append(Patch(facecolor=GREY, alpha=0.25, linewidth=0, label="range over layers"))
    if gaussian:
        handles.append(Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="Gaussian matrix of that shape"))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(LEGEND_WIDTH / (longest + 8))))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
