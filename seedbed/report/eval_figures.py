"""Scores with intervals, side by side or over the steps of a run, as figures: rows in, a matplotlib Figure out."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.eval.scores import ALL, Score
from seedbed.report.eval_rows import Line, Z, drawn, scaled
from seedbed.report.style import ARMS, GREEN, GREY, WIDTH, labelled, panels, style

BETTER, WORSE = (GREEN, "^"), ("#8A4B9E", "s")  # other colours than those of the two models
MOST_LINES = len(ARMS)
"""That a panel over steps holds apart."""
EDGE = 3.0
"""Points that are drawn outside 0 to 100 %, so that dots there are whole."""


def scores_figure(lines: Sequence[Line], models: Sequence[str]) -> Figure:
    """A dot and 95 % interval for each score; of two models also the second minus the first, beside it."""
    groups = drawn(lines)
    columns = 2 if len(models) == 2 else 1
    heights = [len(own) + 1.2 for own in groups.values()]
    with style():
        height = 0.9 + 0.27 * sum(heights) + 0.35 * len(groups)
        figure, axes = panels(
            len(groups), columns, WIDTH, height, height_ratios=heights, width_ratios=[1.25, 1][:columns]
        )  # fmt: skip
        for row, (label, own) in enumerate(groups.items()):
            panel = axes[row * columns]
            for place, model in enumerate(models):
                shift = 0.0 if len(models) == 1 else (place - 0.5) * 0.34
                _dots(panel, [line.scores[place] for line in own], shift, *ARMS[place], model)
            _rows(panel, own)
            if own[0].unit == "share":  # normal intervals of few items reach beyond what can be
                low, high = panel.get_xlim()
                panel.set_xlim(max(low, -EDGE), min(high, 100 + EDGE))
            panel.set_xlabel(label)
            if columns == 2:
                _gains(axes[row * columns + 1], own)
                axes[row * columns + 1].set_xlabel(f"{models[1]} − {models[0]}{_unit(own)}")
        if columns == 2:
            figure.legend(handles=labelled(axes[:1]), loc="outside upper left", ncols=2)
        return figure


def _dots(axes: Axes, scores: Sequence[Score | None], shift: float, colour: str, marker: str, label: str) -> None:
    for place, score in enumerate(scores):
        if score is None:
            continue
        value = scaled(score.value, score.unit)
        known = score.stderr is not None
        axes.plot(
            value, place + shift, marker, color=colour, markersize=5, markerfacecolor=colour if known else "white"
        )
        if score.stderr is not None:
            reach = Z * scaled(score.stderr, score.unit)
            axes.plot([value - reach, value + reach], [place + shift] * 2, color=colour, linewidth=1.6)
    axes.plot([], [], marker, color=colour, linestyle="-", label=label)  # for the legend


def _gains(axes: Axes, lines: Sequence[Line]) -> None:
    axes.axvline(0, color=GREY, linewidth=1)
    for place, line in enumerate(lines):
        one = line.difference
        if one is None:
            continue
        colour, marker = {True: BETTER, False: WORSE, None: (GREY, "D")}[line.gain]
        known = one.low is not None and one.high is not None
        axes.plot(
            scaled(one.difference, line.unit), place, marker, color=colour, markersize=5,
            markerfacecolor=colour if known else "white",
        )  # fmt: skip
        if one.low is not None and one.high is not None:
            axes.plot([scaled(x, line.unit) for x in (one.low, one.high)], [place] * 2, color=colour, linewidth=1.6)
    _rows(axes, lines)
    axes.tick_params(labelleft=False)


def _rows(axes: Axes, lines: Sequence[Line]) -> None:
    axes.set_yticks(range(len(lines)), [f"{line.name} ({_items(line):,})" for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _items(line: Line) -> int:
    return max(score.items for score in line.scores if score is not None)


def _unit(lines: Sequence[Line]) -> str:
    return {"share": " (points)", "": ""}.get(lines[0].unit, f" ({lines[0].unit})")


def course_figure(lines: Sequence[Line], steps: Sequence[int]) -> Figure:
    """Scores over the steps of a run, a panel a metric, a line a task or a group of its items, with 95 % bands."""
    groups = {label: course_lines(own) for label, own in drawn(lines).items()}
    with style():
        figure, axes = panels(len(groups), 1, WIDTH, 0.5 + 3.1 * len(groups), sharex=True)
        for panel, (label, own) in zip(axes, groups.items(), strict=True):
            for line, (colour, marker) in zip(own, ARMS, strict=False):
                _course(panel, line, steps, colour, marker)
            metric, _, better = label.rpartition(", ")
            panel.set(ylabel=metric, title=better)
            panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        return figure


def course_lines(lines: Sequence[Line]) -> list[Line]:
    """Those that a panel shows, as many as it holds apart: tasks, then groups of few kinds before those of many, and
    parts last."""
    kinds = Counter(line.kind for line in lines)
    return sorted(lines, key=lambda line: (line.subset != ALL, line.is_detail, kinds[line.kind]))[:MOST_LINES]


def _course(axes: Axes, line: Line, steps: Sequence[int], colour: str, marker: str) -> None:
    """A line, with a band where it is of a whole task: those of groups would hide one another."""
    points = [(step, score) for step, score in zip(steps, line.scores, strict=True) if score is not None]
    xs = [step for step, _ in points]
    values = [scaled(score.value, line.unit) for _, score in points]
    whole = line.subset == ALL
    axes.plot(xs, values, color=colour, marker=marker, markersize=4, linewidth=2.2 if whole else 1, label=line.name)
    if whole:
        reach = [Z * scaled(score.stderr or 0, line.unit) for _, score in points]
        low, high = ([value + sign * one for value, one in zip(values, reach, strict=True)] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
