"""Figures of what goes with a model's size: the optimum over width, loss and effective size over parameters."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from seedbed.report.study_figures import MOST_COMPARISONS, arm_look, legend, open_bars, size_look
from seedbed.report.study_trend_rows import FitRow, GainRow, OptimumRow, ScalingRow
from seedbed.report.style import GREY, WIDTH, log_scale, log_widths, panels, short, style

COUNTED = {"all parameters": "parameters", "without embeddings": "parameters outside embeddings"}
ASIDE = 0.03
"""How far lines stand beside each other, in powers of e."""


def optimum_figure(rows: Sequence[OptimumRow], axis: str) -> Figure:
    """The best value of an axis, with its interval, a line of panels a set of other levels: left over width, a line a
    share of the budget; right the same over tokens per parameter, a line a size. Hollow where a bound is missing."""
    rows = sorted((row for row in rows if row.at is not None), key=lambda row: (row.width, row.share))
    kinds = list(dict.fromkeys(row.others for row in rows))
    shares = sorted({row.share for row in rows})
    sizes = list(dict.fromkeys(row.size for row in rows))
    with style():
        figure, axes = panels(len(kinds), 2, WIDTH, 0.7 + 2.7 * len(kinds), sharey="row")
        for others, left, right in zip(kinds, axes[::2], axes[1::2], strict=True):
            for index, share in enumerate(shares):
                own = [row for row in rows if (row.others, row.share) == (others, share)]
                look = arm_look(index, f"share {short(share)}")
                aside = 1 + ASIDE * (index - (len(shares) - 1) / 2)
                open_bars(left, [r.width * aside for r in own], [(r.at, r.low, r.high) for r in own], look)
            for index, size in enumerate(sizes):
                own = [row for row in rows if (row.others, row.size) == (others, size)]
                look = size_look(index, len(sizes), size)
                open_bars(right, [r.tokens_per_parameter for r in own], [(r.at, r.low, r.high) for r in own], look)
            log_widths(left, sorted({row.width for row in rows}))
            log_scale(right, "x", labels=6)
            left.set(title=others, ylabel=f"best {axis}", xlabel="width")
            right.set_xlabel("tokens / parameter")
        return legend(figure, axes)


def scaling_figure(rows: Sequence[ScalingRow], fits: Sequence[FitRow], gains: Sequence[GainRow]) -> Figure:
    """Loss over parameters at the whole budget, a line of panels a comparison: left all parameters, right without
    embeddings. Curves are the fits, means over seeds, else lines from size to size; an arrow leads from each size of
    the level to the size at which the baseline has the same loss."""
    kinds = list(dict.fromkeys((row.level, row.others) for row in rows if row.share == 1.0))[:MOST_COMPARISONS]
    with style():
        figure, axes = panels(len(kinds), 2, WIDTH, 0.9 + 2.6 * len(kinds), sharey="row", sharex="col")
        for line, (level, others) in enumerate(kinds):
            for panel, (counted, label) in zip(axes[2 * line : 2 * line + 2], COUNTED.items(), strict=True):
                place = level, others, counted, 1.0
                own = [row for row in rows if _place(row) == place]
                _scaling(panel, own, [f for f in fits if _place(f) == place], [g for g in gains if _place(g) == place])
                panel.set_xlabel(label if line == len(kinds) - 1 else "")
            told = f"{level} and {rows[0].baseline}" + (f", {others}" if others else "")
            axes[2 * line].set(title=told, ylabel="loss (nats / token)")
        return legend(figure, axes)


def _place(row: ScalingRow | FitRow | GainRow) -> tuple[str, str, str, float]:
    return row.level, row.others, row.counted, row.share


def _scaling(panel: Axes, rows: Sequence[ScalingRow], fits: Sequence[FitRow], gains: Sequence[GainRow]) -> None:
    rows = sorted(rows, key=lambda row: row.parameters)
    n = [row.parameters for row in rows]
    base = [(row.base_mean, row.base_low, row.base_high) for row in rows]
    level = [(row.mean, row.low, row.high) for row in rows]
    x = np.geomspace(n[0], n[-1], 60)
    scales = ([fit.base_scale for fit in fits], [fit.arm_scale for fit in fits])
    for index, (label, points, of) in enumerate(
        zip((rows[0].baseline, "the level"), (base, level), scales, strict=True)
    ):
        look = arm_look(index, label)
        open_bars(panel, n, points, look | ({"linestyle": "none"} if fits else {}))
        if fits:
            curves = [fit.floor + scale * (x / n[0]) ** -fit.exponent for fit, scale in zip(fits, of, strict=True)]
            panel.plot(x, np.mean(curves, axis=0), color=look["color"])
    losses = {row.parameters: row.mean for row in rows}
    for gain in gains:
        if gain.same_as is not None:
            loss, arrow = losses[gain.parameters], {"arrowstyle": "->", "color": GREY, "shrinkA": 3, "shrinkB": 0}
            panel.annotate("", (gain.same_as, loss), (gain.parameters, loss), arrowprops=arrow)
    log_scale(panel, "x", labels=5)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def gains_figure(rows: Sequence[GainRow]) -> Figure:
    """Gain in effective size over parameters at the whole budget: left all of them, right without embeddings; a line a
    comparison. Sizes without a number have no mark."""
    rows = [row for row in rows if row.share == 1.0 and row.gain is not None]
    kinds = list(dict.fromkeys((row.level, row.others) for row in rows))
    with style():
        figure, axes = panels(1, 2, WIDTH, 3.6, sharey=True)
        for panel, (counted, label) in zip(axes, COUNTED.items(), strict=True):
            for index, (level, others) in enumerate(kinds):
                own = [r for r in rows if (r.counted, r.level, r.others) == (counted, level, others)]
                look = arm_look(index, ", ".join(filter(None, (level, others))))
                aside = 1 + ASIDE * (index - (len(kinds) - 1) / 2)
                percents = [tuple(None if x is None else 100 * x for x in (r.gain, r.low, r.high)) for r in own]
                open_bars(panel, [r.parameters * aside for r in own], percents, look)
            panel.axhline(0, color=GREY, linewidth=0.9)
            log_scale(panel, "x", labels=5)
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            panel.set_xlabel(label)
        axes[0].set_ylabel("effective size, N′/N − 1 (%)")
        return legend(figure, axes)
