"""Figures of what goes with a model's size: the optimum over width, the effective size over parameters."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seedbed.report.study_figures import arm_look, legend, size_look
from seedbed.report.study_trend_rows import GainRow, OptimumRow
from seedbed.report.style import GREY, WIDTH, log_scale, log_widths, panels, short, style

COUNTED = {"all parameters": "parameters", "without embeddings": "parameters outside embeddings"}
ASIDE = 0.03
"""How far lines stand beside each other, in powers of e."""


def optimum_figure(rows: Sequence[OptimumRow], axis: str) -> Figure:
    """The best value of an axis, with its interval, a line of panels a set of other levels: left over width, a line a
    share of the budget; right the same over tokens a parameter, a line a size. Hollow where a bound is missing."""
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
                _open_bars(left, [r.width * aside for r in own], [(r.at, r.low, r.high) for r in own], look)
            for index, size in enumerate(sizes):
                own = [row for row in rows if (row.others, row.size) == (others, size)]
                look = size_look(index, len(sizes), size)
                _open_bars(right, [r.tokens_per_parameter for r in own], [(r.at, r.low, r.high) for r in own], look)
            log_widths(left, sorted({row.width for row in rows}))
            log_scale(right, "x", labels=6)
            left.set(title=others, ylabel=f"best {axis}", xlabel="width")
            right.set_xlabel("tokens / parameter")
        return legend(figure, axes)


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
                _open_bars(panel, [r.parameters * aside for r in own], percents, look)
            panel.axhline(0, color=GREY, linewidth=0.9)
            log_scale(panel, "x", labels=5)
            panel.set_xlabel(label)
        axes[0].set_ylabel("effective size, N′/N − 1 (%)")
        return legend(figure, axes)


def _open_bars(panel: Axes, x: Sequence[float], points: Sequence[tuple[Any, ...]], look: dict[str, Any]) -> None:
    """(value, low, high) at ``x``, bounds as far as they are there; hollow where one is missing."""
    low = [0.0 if lower is None else max(0.0, at - lower) for at, lower, _ in points]
    high = [0.0 if upper is None else max(0.0, upper - at) for at, _, upper in points]
    panel.errorbar(x, [at for at, _, _ in points], [low, high], capsize=2.5, elinewidth=1, **look)
    lacking = [(place, at) for place, (at, *bounds) in zip(x, points, strict=True) if None in bounds]
    hollow: dict[str, Any] = look | {"label": None, "linestyle": "none", "markerfacecolor": "white", "zorder": 3}
    panel.plot([place for place, _ in lacking], [at for _, at in lacking], **hollow)
