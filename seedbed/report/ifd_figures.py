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


class Model(NamedTuple):
    name: str
    ifd: Values
    """A value a record."""
    color: str


def window_of(n: int) -> int:
    """Records of a running median: a tenth of all, at least 5 and odd (choice)."""
    return max(5, n // 10) | 1


def length_bias_figure(lengths: Values, models: Sequence[Model], ratio: Values | None, short: int) -> Figure:
    """IFD of each model, and the loss ratio where there is one, against the response's ``lengths`` in tokens, with the
    running median; what is left of ``short`` is shaded. The axes of IFD are the same.
    """
    series = [(f"IFD of {model.name}", model.ifd, model.color) for model in models]
    series += [] if ratio is None else [("loss ratio", ratio, GREEN)]
    low, high = _span([value for model in models for value in model.ifd])
    with style():
        figure, all_axes = panels(1, len(series), WIDTH, 3.9, sharex=True)
        for axes, (label, values, color) in zip(all_axes, series, strict=True):
            _scatter(axes, lengths, values, color)
            if label != "loss ratio":
                axes.set_ylim(low, high)
            x, y = running_median(lengths, values, window_of(len(lengths)))
            axes.plot(x, y, color=INK, linewidth=2, label=f"running median of {window_of(len(lengths))}")
            axes.axhline(1, color=GREY, linestyle="--", linewidth=1, label="equal losses")
            axes.set(xlabel="response length (tokens)", ylabel=label)
            log_scale(axes, "x", 6)
            left = axes.get_xlim()[0]
            if left < short:
                axes.axvspan(left, short, color=GREY, alpha=0.13, linewidth=0, label=f"fewer than {short} tokens")
                axes.set_xlim(left=left)
        figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
        return figure


def distribution_figure(models: Sequence[Model]) -> Figure:
    """Share of records over IFD, one outline a model, with each median."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 3.0)
        edges = np.histogram_bin_edges([value for model in models for value in model.ifd], bins=BINS)
        for name, values, color in models:
            share = np.histogram(values, edges)[0] / len(values)
            axes.stairs(share, edges, color=color, linewidth=1.8, label=name)
            axes.stairs(share, edges, color=color, alpha=0.13, fill=True)
            axes.axvline(float(np.median(values)), color=color, linestyle=":", linewidth=1.6)
        axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
        axes.set(xlabel="IFD", ylabel="share of records")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


def change_figure(base: Model, checkpoint: Model, ratio: Values) -> Figure:
    """What training changed: IFD of one model against that of the other, and the loss ratio against IFD before."""
    with style():
        figure, (left, right) = panels(1, 2, WIDTH, 4.1)
        _scatter(left, base.ifd, checkpoint.ifd, checkpoint.color)
        ends = _span([*base.ifd, *checkpoint.ifd])
        left.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
        left.set(xlabel=f"IFD of {base.name}", ylabel=f"IFD of {checkpoint.name}", xlim=ends, ylim=ends)
        _scatter(right, base.ifd, ratio, GREEN)
        right.axhline(1, color=GREY, linestyle="--", linewidth=1)
        right.set(xlabel=f"IFD of {base.name}", ylabel="loss ratio")
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
