"""Figures of a study: rows to matplotlib figures; none keeps state. Bars and bands are 95 % intervals over seeds."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seedbed.report.study_rows import DifferenceRow, LossRow, TuneRow
from seedbed.report.study_trend_rows import CurveRow, KnobRow, OptimumRow
from seedbed.report.style import ARMS, GREY, WIDTH, log_scale, panels, short, style

COLUMNS = 3
MILLION = 1e6
MOST_COMPARISONS = 8
"""Comparisons that the figure of gaps has a row of panels for."""


def tuning_figure(rows: Sequence[TuneRow], arms: Sequence[str], sizes: Sequence[str]) -> Figure:
    """Loss on the tuning seed over each tuned value, a panel a size; what was chosen has a ring. Runs that diverged are
    crosses at the upper edge."""
    rows = [row for row in rows if row.on_line]
    paths = list(dict.fromkeys(row.path for row in rows))
    drawn = [(path, size) for path in paths for size in sizes if any((r.path, r.size) == (path, size) for r in rows)]
    with style():
        figure, axes = grid(len(drawn), 2.6)
        for panel, (path, size) in zip(axes, drawn, strict=True):
            for index, arm in enumerate(arms):
                own = sorted(
                    (row for row in rows if (row.path, row.size, row.arm) == (path, size, arm)), key=lambda r: r.value
                )
                look = arm_look(index, arm)
                panel.plot([row.value for row in own], [row.nats_per_token or math.nan for row in own], **look)
                ring = [(row.value, row.nats_per_token or math.nan) for row in own if row.chosen]
                open_mark: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none"}
                panel.plot([x for x, _ in ring], [y for _, y in ring], color=look["color"], **open_mark)
                lost = [row.value for row in own if row.nats_per_token is None]
                up = panel.get_xaxis_transform()
                panel.plot(lost, [0.98 - 0.04 * index] * len(lost), "x", color=look["color"], transform=up)
            panel.set(title=size, xlabel=path)
            if all(row.nats_per_token is None for row in rows if (row.path, row.size) == (path, size)):
                panel.set_yticks([])  # there is no loss
            log_scale(panel, "x", labels=5)
        for panel in axes[::COLUMNS]:
            panel.set_ylabel("loss (nats / token)")
        return legend(figure, axes)


def curves_figure(
    rows: Sequence[CurveRow], ends: Sequence[LossRow], arms: Sequence[str], sizes: Sequence[str]
) -> Figure:
    """Held-out loss over tokens, a panel a size: runs of the whole budget as lines with bands, ends of the runs that
    branch off as hollow marks."""
    drawn = [size for size in sizes if any(row.size == size for row in rows)]
    with style():
        figure, axes = grid(len(drawn), 2.9)
        for panel, size in zip(axes, drawn, strict=True):
            for index, arm in enumerate(arms):
                own: list[CurveRow] = [row for row in rows if (row.size, row.arm) == (size, arm)]
                look = arm_look(index, arm)
                if not own:
                    continue
                tokens = [row.tokens / MILLION for row in own]
                small: dict[str, Any] = look | {"markersize": 3}
                panel.plot(tokens, [row.mean for row in own], **small)
                if own[0].low is not None:
                    low, high = [row.low or row.mean for row in own], [row.high or row.mean for row in own]
                    panel.fill_between(tokens, low, high, color=look["color"], alpha=0.12, linewidth=0)
                branches = [row for row in ends if (row.size, row.arm) == (size, arm) and row.share < 1]
                panel.plot(
                    [row.tokens / MILLION for row in branches], [row.mean for row in branches], linestyle="none",
                    marker=look["marker"], color=look["color"], markersize=6, markerfacecolor="white",
                )  # fmt: skip
            panel.set(title=size, xlabel="million tokens")
            log_scale(panel, "x", labels=5)
            if own_loss := [row.mean for row in rows if row.size == size]:
                # the first evaluation is far above the rest, which is what is compared
                top = sorted(own_loss)[math.ceil(0.85 * len(own_loss)) - 1]
                top = max([top, *(row.mean for row in ends if row.size == size)])
                panel.set_ylim(top=top + 0.1 * (top - min(own_loss)) if top > min(own_loss) else None)
        for panel in axes[::COLUMNS]:
            panel.set_ylabel("loss (nats / token)")
        return legend(figure, axes)


def gap_figure(rows: Sequence[DifferenceRow], sizes: Sequence[str]) -> Figure:
    """Difference to the baseline over tokens per parameter, a row of panels a comparison: left with embeddings, right
    without; a line a size, its points the shares of the budget. Hollow where there is no interval."""
    kinds = list(dict.fromkeys((row.others, row.level) for row in rows))[:MOST_COMPARISONS]
    counts = {
        "tokens_per_parameter": "tokens / parameter",
        "tokens_per_non_embedding": "tokens / parameter outside embeddings",
    }
    with style():
        figure, axes = panels(len(kinds), 2, WIDTH, 0.9 + 2.3 * len(kinds), sharey="row", sharex="col")
        for line, (others, level) in enumerate(kinds):
            for column, (field, label) in enumerate(counts.items()):
                panel = axes[2 * line + column]
                for index, size in enumerate(sizes):
                    own = [row for row in rows if (row.others, row.level, row.size) == (others, level, size)]
                    own.sort(key=lambda row: row.share)
                    look, points = size_look(index, len(sizes), size), [(row.mean, row.low, row.high) for row in own]
                    open_bars(panel, [getattr(row, field) for row in own], points, look)
                panel.set_xlabel(label if line == len(kinds) - 1 else "")
            told = f"{level} less {rows[0].baseline}" + (f", {others}" if others else "")
            axes[2 * line].set(title=told, ylabel="difference (nats / token)")
        for panel in axes[:2]:  # of each column, whose panels share their axis; once all is drawn
            log_scale(panel, "x", labels=6)
        for panel in axes:
            panel.axhline(0, color=GREY, linewidth=0.9)
        return legend(figure, axes)


def gap_points_figure(rows: Sequence[DifferenceRow]) -> Figure:
    """Difference to the baseline of a study of one size and share, a line a comparison. Hollow where there is no
    interval."""
    with style():
        figure, (panel,) = panels(1, 1, WIDTH, 1.2 + 0.34 * len(rows))
        look: dict[str, Any] = size_look(0, 1, "") | {"linestyle": "none", "label": None}
        for place, row in enumerate(rows):
            reach = None if row.low is None or row.high is None else [[row.mean - row.low], [row.high - row.mean]]
            mark: dict[str, Any] = look | ({"markerfacecolor": "white"} if reach is None else {})
            panel.errorbar([row.mean], [place], xerr=reach, capsize=2.5, elinewidth=1, **mark)
        panel.axvline(0, color=GREY, linewidth=0.9)
        panel.set_yticks(range(len(rows)), [", ".join(filter(None, (row.level, row.others))) for row in rows])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set(title=f"less {rows[0].baseline}", xlabel="difference (nats / token)")
        return figure


def knob_figure(
    rows: Sequence[KnobRow], optima: Sequence[OptimumRow], axis: str, sizes: Sequence[str], share: float = 1.0
) -> Figure:
    """Final loss over the axis whose optimum is looked for, a panel a size; the optimum is a line with its interval.
    Hollow where a loss has no interval."""
    rows = [row for row in rows if row.share == share]
    kinds = list(dict.fromkeys(row.others for row in rows))
    drawn = [size for size in sizes if any(row.size == size for row in rows)]
    with style():
        figure, axes = grid(len(drawn), 2.9)
        for panel, size in zip(axes, drawn, strict=True):
            for index, others in enumerate(kinds):
                own = sorted((r for r in rows if (r.size, r.others) == (size, others)), key=lambda row: row.value)
                look = arm_look(index, others or "mean over seeds")
                open_bars(panel, [row.value for row in own], [(row.mean, row.low, row.high) for row in own], look)
                for one in optima:
                    if (one.size, one.others, one.share) != (size, others, share) or one.at is None:
                        continue
                    panel.axvline(one.at, color=look["color"], linestyle="--", linewidth=1.2)
                    if one.low is not None and one.high is not None:
                        panel.axvspan(one.low, one.high, color=look["color"], alpha=0.12, linewidth=0)
            panel.set(title=size, xlabel=axis)
            panel.xaxis.set_major_formatter(lambda x, _: short(x))
        for panel in axes[::COLUMNS]:
            panel.set_ylabel("loss (nats / token)")
        return legend(figure, axes) if len(kinds) > 1 else figure


def grid(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """So many panels, COLUMNS a line, each ``height`` inches high."""
    columns = min(count, COLUMNS)
    lines = math.ceil(count / columns)
    figure, axes = panels(lines, columns, WIDTH, 0.7 + height * lines)
    for panel in axes[count:]:
        panel.remove()
    return figure, axes[:count]


def bars(panel: Axes, x: Sequence[float], rows: Sequence[Any], **look: Any) -> None:
    """Means with their intervals, those that have one."""
    if not rows:
        return
    means = [row.mean for row in rows]
    low = [0.0 if row.low is None else row.mean - row.low for row in rows]
    high = [0.0 if row.high is None else row.high - row.mean for row in rows]
    panel.errorbar(x, means, [low, high], capsize=2.5, elinewidth=1, **look)


def open_bars(panel: Axes, x: Sequence[float], points: Sequence[tuple[Any, ...]], look: dict[str, Any]) -> None:
    """(value, low, high) at ``x``, bounds as far as they are there; hollow where one is missing."""
    low = [0.0 if lower is None else max(0.0, at - lower) for at, lower, _ in points]
    high = [0.0 if upper is None else max(0.0, upper - at) for at, _, upper in points]
    panel.errorbar(x, [at for at, _, _ in points], [low, high], capsize=2.5, elinewidth=1, **look)
    lacking = [(place, at) for place, (at, *bounds) in zip(x, points, strict=True) if None in bounds]
    hollow: dict[str, Any] = look | {"label": None, "linestyle": "none", "markerfacecolor": "white", "zorder": 3}
    panel.plot([place for place, _ in lacking], [at for _, at in lacking], **hollow)


def arm_look(index: int, label: str) -> dict[str, Any]:
    """Eight are told apart by colour and mark; more are the same again, dashed and hollow."""
    color, marker = ARMS[index % len(ARMS)]
    more = index >= len(ARMS)
    return {
        "color": color, "marker": marker, "markersize": 4, "label": label,
        "linestyle": "--" if more else "-", "markerfacecolor": "white" if more else color,
    }  # fmt: skip


def size_look(index: int, count: int, label: str) -> dict[str, Any]:
    """Sizes have an order: from light to dark."""
    color = mpl.colormaps["viridis_r"](1.0 if count == 1 else 0.2 + 0.8 * index / (count - 1))
    return {"color": color, "marker": ARMS[index % len(ARMS)][1], "markersize": 5, "label": label}


def legend(figure: Figure, axes: Sequence[Axes]) -> Figure:
    """The figure with a legend below it: what is labelled in any panel, once."""
    handles: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 4))
    return figure
