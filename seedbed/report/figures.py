"""Rows to figures. Each function returns a matplotlib Figure that stands on its own; none keeps state."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.facts.fact import in_order
from seedbed.measure.rows import WeightRow
from seedbed.measure.sink import SinkReport
from seedbed.report.measures import NAMES
from seedbed.report.style import (
    AFTER,
    BEFORE,
    BLUE,
    GREEN,
    GREY,
    INK,
    VERMILLION,
    WIDTH,
    log_scale,
    panels,
    short,
    style,
)

MetricsRow = dict[str, Any]
MAX_POINTS = 600  # a curve is not wider than that in pixels

COMPONENT_MEASURES = {name: NAMES[name] for name in ("stable_rank", "entropy_rank", "std")}


def kind(metrics: Sequence[MetricsRow], name: str) -> list[MetricsRow]:
    """The rows of one kind: ``train``, ``guard``, ``gradients``, ``weights`` or ``eval``."""
    return [row for row in metrics if row["kind"] == name]


def thinned(rows: Sequence[MetricsRow], field: str, most: int = MAX_POINTS) -> tuple[list[float], list[float]]:
    """(steps, values) of ``field``: every row, or the means of ``most`` equal stretches of rows when there are more."""
    size = max(1, math.ceil(len(rows) / most))
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    steps = [sum(row["step"] for row in group) / len(group) for group in groups]
    return steps, [sum(row[field] for row in group) / len(group) for group in groups]


def loss_figure(metrics: Sequence[MetricsRow], vocab_size: int | None = None) -> Figure:
    """Training and held-out loss in nats per token over steps, and the loss of a uniform guess, ln V."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 4.0)
        train, heldout = kind(metrics, "train"), kind(metrics, "eval")
        if train:
            axes.plot(*thinned(train, "loss"), color=BLUE, linewidth=1.2, label="training")
        if heldout:
            steps, losses = [row["step"] for row in heldout], [row["nats_per_token"] for row in heldout]
            axes.plot(steps, losses, color=VERMILLION, marker="o", markersize=5, label="held-out", zorder=3)
            above = {"xytext": (0, 9), "textcoords": "offset points", "ha": "right", "va": "bottom"}
            axes.annotate(f"{losses[-1]:.3f}", (steps[-1], losses[-1]), **above)
        if vocab_size:
            uniform = math.log(vocab_size)
            axes.axhline(uniform, color=GREY, linestyle="--", linewidth=1, label=f"uniform guess, ln V = {uniform:.2f}")
        axes.set(xlabel="step", ylabel="loss (nats / token)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.02)
        figure.legend(loc="outside upper right", ncols=3)
        return figure


def rate_figure(metrics: Sequence[MetricsRow]) -> Figure:
    """Learning rate over steps."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 2.5)
        axes.plot(*thinned(kind(metrics, "train"), "lr"), color=BLUE)
        axes.set(xlabel="step", ylabel="learning rate")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        axes.yaxis.set_major_formatter(lambda x, _: short(x))
        return figure


def speed_figure(metrics: Sequence[MetricsRow]) -> Figure:
    """Training tokens a second over steps, with their median."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 2.5)
        train = kind(metrics, "train")
        axes.plot(*thinned(train, "tokens_per_s"), color=BLUE, linewidth=1)
        middle = median(row["tokens_per_s"] for row in train)
        axes.axhline(middle, color=VERMILLION, linestyle="--", linewidth=1.2, label=f"median {middle:,.0f}")
        axes.set(xlabel="step", ylabel="tokens / s")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        figure.legend(loc="outside upper right")
        return figure


def components_figure(before: Sequence[WeightRow], after: Sequence[WeightRow]) -> Figure:
    """Stable rank, effective rank and std of each component, initialized and trained, with a Gaussian's beside them.

    A component's marks are means over its matrices; the small dots are the trained matrices one by one.
    """
    roles = _roles((*before, *after))
    with style():
        figure, axes = panels(1, len(COMPONENT_MEASURES), WIDTH, 1.5 + 0.36 * len(roles), sharey=True)
        for panel, (field, label) in zip(axes, COMPONENT_MEASURES.items(), strict=True):
            for place, role in enumerate(roles):
                _dumbbell(panel, place, _values(before, role, field), _values(after, role, field))
                if field != "std":
                    reference = [getattr(r.gaussian, field) for r in (*before, *after) if r.role == role and r.gaussian]
                    if reference:
                        mean = sum(reference) / len(reference)
                        panel.plot([mean] * 2, [place - 0.32, place + 0.32], color=INK, linewidth=1.4, zorder=1)
            panel.set_title(label)
            log_scale(panel, "x")
            panel.grid(axis="y", visible=False)
        axes[0].set_yticks(range(len(roles)), roles)
        axes[0].set_ylim(len(roles) - 0.4, -0.6)
        handles = [
            axes[0].plot([], [], "o", color=BEFORE, markerfacecolor="white", markeredgewidth=1.6, markersize=9)[0],
            axes[0].plot([], [], "o", color=AFTER, markersize=5.5)[0],
            axes[0].plot([], [], "o", color=AFTER, markersize=3, alpha=0.4)[0],
            axes[0].plot([], [], "|", color=INK, markersize=11, markeredgewidth=1.4)[0],
        ]
        labels = ["initialized (mean)", "trained (mean)", "trained, each layer", "Gaussian matrix of that shape"]
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return figure


def _roles(rows: Sequence[WeightRow]) -> list[str]:
    """The roles of ``rows``, in the order of the component table."""
    return in_order(row.role for row in rows)


def _values(rows: Sequence[WeightRow], role: str, field: str) -> list[float]:
    values = [getattr(row.stats, field) for row in rows if row.role == role]
    return [value for value in values if value]  # None has no place, and zero none on a logarithmic axis


def _dumbbell(axes: Axes, place: float, before: list[float], after: list[float]) -> None:
    """A ring where it began, a dot where it ended: the dot fits into the ring, so both show when nothing moved."""
    ends = [sum(values) / len(values) for values in (before, after) if values]
    axes.plot(ends, [place] * len(ends), color=GREY, linewidth=1.2, zorder=2)
    if len(after) > 1:
        axes.plot(after, [place] * len(after), "o", color=AFTER, markersize=3, alpha=0.4, zorder=2.5)
    if before:
        axes.plot(ends[0], place, "o", color=BEFORE, mfc="white", mew=1.6, markersize=9, zorder=3)
    if after:
        axes.plot(ends[-1], place, "o", color=AFTER, markersize=5.5, zorder=4)


def depth_figure(before: Sequence[WeightRow], after: Sequence[WeightRow], field: str = "stable_rank") -> Figure:
    """Profile of one measure over depth, a panel a component: initialized and trained."""
    roles = _roles([row for row in (*before, *after) if row.layer is not None])
    columns = min(4, len(roles))
    lines = math.ceil(len(roles) / columns)
    with style():
        figure, axes = panels(lines, columns, WIDTH, 0.7 + 1.9 * lines, sharex=True)
        for panel, role in zip(axes, roles, strict=False):
            for rows, color, marker, label in (
                (before, BEFORE, "s", "initialized"),
                (after, AFTER, "o", "trained"),
            ):
                points = [
                    (row.layer, getattr(row.stats, field)) for row in rows if row.role == role and row.layer is not None
                ]
                points = [point for point in points if point[1] is not None]
                face = "white" if color == BEFORE else color
                xs, ys = [x for x, _ in points], [y for _, y in points]
                panel.plot(xs, ys, color=color, marker=marker, markerfacecolor=face, markersize=4.5, label=label)
            panel.set_title(role)
            panel.set_ylim(0, 1.1 * panel.dataLim.y1 if panel.dataLim.y1 > 0 else 1)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        for panel in axes[len(roles) :]:
            panel.set_visible(False)
        figure.supxlabel("layer", fontsize=10)
        figure.supylabel(field.replace("_", " "), fontsize=10)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
        return figure


def sink_figure(before: SinkReport | None, after: SinkReport | None) -> Figure:
    """Sink score per layer, initialized and trained, beside uniform attention; small dots are the trained heads."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 3.6)
        for report, color, marker, label in (
            (before, BEFORE, "s", "initialized, mean over heads"),
            (after, AFTER, "o", "trained, mean over heads"),
        ):
            if report is not None:
                face = "white" if color == BEFORE else color
                means = report.layers
                axes.plot(range(len(means)), means, color=color, marker=marker, markerfacecolor=face, label=label)
        if after is not None:
            heads = [(layer, score) for layer, scores in enumerate(after.scores) for score in scores]
            axes.plot(*zip(*heads, strict=True), "o", color=AFTER, markersize=3, alpha=0.4, label="trained, each head")
        either = after or before
        if either is not None:
            label = f"uniform attention, {either.uniform:.3f}"
            axes.axhline(either.uniform, color=GREEN, linestyle="--", linewidth=1.2, label=label)
        axes.set(xlabel="layer", ylabel="sink score")
        axes.set_ylim(0, 1.15 * axes.dataLim.y1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper right", ncols=4)
        return figure
