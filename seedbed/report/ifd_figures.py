"""Figures of instruction-following difficulty: rows in, figures out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seedbed.measure.ifd import running_median
from seedbed.report.style import GREEN, GREY, INK, WIDTH, log_scale, panels, style

Values = Sequence[float]
BINS = 40
MIDDLE = 0.99
"""Share of values that the bins span."""


class Model(NamedTuple):
    """Of each record a value."""

    name: str
    conditional: Values
    unconditional: Values
    ifd: Values
    color: str


def window_of(n: int) -> int:
    """Records of a running median: a tenth of all, at least 5 and odd (choice)."""
    return max(5, n // 10) | 1


def length_bias_figure(lengths: Values, models: Sequence[Model], short: int) -> Figure:
    """Both losses and IFD of each model, a row, against the response's ``lengths`` in tokens, with the running median;
    what is left of ``short`` is shaded. All losses have one axis, and all IFD (S1 figure on length bias).
    """
    losses = _span([value for model in models for value in (*model.conditional, *model.unconditional)])
    ifds = _span([value for model in models for value in model.ifd])
    columns = [
        ("conditional", "conditional loss (nats per token)"),
        ("unconditional", "unconditional loss (nats per token)"),
        ("ifd", "IFD"),
    ]
    with style():
        figure, all_axes = panels(len(models), 3, WIDTH, 0.7 + 3.0 * len(models), sharex=True)
        for place, axes in enumerate(all_axes):
            model, (field, label) = models[place // 3], columns[place % 3]
            values = getattr(model, field)
            _scatter(axes, lengths, values, model.color)
            x, y = running_median(lengths, values, window_of(len(lengths)))
            axes.plot(x, y, color=INK, linewidth=2, label=f"running median of {window_of(len(lengths))}")
            if field == "ifd":
                axes.axhline(1, color=GREY, linestyle="--", linewidth=1, label="equal losses")
            axes.set(ylabel=label, ylim=ifds if field == "ifd" else losses)
            if place % 3 == 0:
                axes.set_title(model.name)
            if place // 3 == len(models) - 1:
                axes.set_xlabel("response length (tokens)")
            _shade(axes, short)
        figure.legend(*all_axes[2].get_legend_handles_labels(), loc="outside upper right", ncols=4)
        return figure


def _shade(axes: Axes, short: int) -> None:
    """A logarithmic axis of lengths, shaded left of ``short``."""
    log_scale(axes, "x", 6)
    left = axes.get_xlim()[0]
    if left < short:
        axes.axvspan(left, short, color=GREY, alpha=0.13, linewidth=0, label=f"fewer than {short} tokens")
        axes.set_xlim(left=left)


def middle(values: Sequence[Values]) -> tuple[float, float]:
    """What bounds the middle MIDDLE of all values of all models."""
    low, high = np.quantile(np.concatenate(values), [(1 - MIDDLE) / 2, (1 + MIDDLE) / 2]).tolist()
    return low, high


def distribution_figure(models: Sequence[Model]) -> Figure:
    """Share of records over IFD, one outline a model, with each median; bins span the middle MIDDLE of all values, and
    the outermost ones also hold what lies beyond.
    """
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 3.0)
        low, high = middle([model.ifd for model in models])
        edges = np.histogram_bin_edges([], bins=BINS, range=(low, high))
        for model in models:
            share = np.histogram(np.clip(model.ifd, edges[0], edges[-1]), edges)[0] / len(model.ifd)
            axes.stairs(share, edges, color=model.color, linewidth=1.8, label=model.name)
            axes.stairs(share, edges, color=model.color, alpha=0.13, fill=True)
            axes.axvline(float(np.median(model.ifd)), color=model.color, linestyle=":", linewidth=1.6)
        axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
        axes.set(xlabel="IFD; outermost bars: and beyond", ylabel="share of records")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


def change_figure(base: Model, checkpoint: Model, ratio: Values, lengths: Values, short: int) -> Figure:
    """What training changed: IFD of one model against that of the other, and the loss ratio against IFD before and
    against the response's ``lengths``."""
    with style():
        figure, (left, middle, right) = panels(1, 3, WIDTH, 3.5)
        _scatter(left, base.ifd, checkpoint.ifd, checkpoint.color)
        ends = _span([*base.ifd, *checkpoint.ifd])
        left.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
        left.set(xlabel=f"IFD of {base.name}", ylabel=f"IFD of {checkpoint.name}", xlim=ends, ylim=ends)
        for axes, x, label in ((middle, base.ifd, f"IFD of {base.name}"), (right, lengths, "response length (tokens)")):
            _scatter(axes, x, ratio, GREEN)
            axes.axhline(1, color=GREY, linestyle="--", linewidth=1)
            axes.set(xlabel=label, ylabel="loss ratio")
        x, y = running_median(lengths, ratio, window_of(len(lengths)))
        right.plot(x, y, color=INK, linewidth=2)
        _shade(right, short)
        return figure


def _span(values: Values) -> tuple[float, float]:
    """From below the least value to above the largest."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05
    return low - margin, high + margin


def _scatter(axes: Axes, x: Values, y: Values, color: str) -> None:
    """Dots, fainter the more there are."""
    alpha = float(np.clip(120 / max(len(x), 1), 0.15, 0.6))
    axes.scatter(x, y, s=14, color=color, alpha=alpha, linewidths=0, rasterized=len(x) > 5000)
