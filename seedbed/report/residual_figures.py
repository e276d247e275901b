"""Figures of the residual analysis: rows to matplotlib figures; none keeps state."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from seedbed.measure.masking import USUAL_EPS
from seedbed.report.residual_rows import NormRow, StreamRow
from seedbed.report.style import ARMS, GREY, WIDTH, log_scale, panels, short, style

GROUPS = {"others": "tokens after the first", "first": "first token of each document"}
SIZES = {
    "rms": "rms of the stream",
    "variance": "variance over features",
    "massive": "max |h| / median |h|",
    "flow": "flow ‖h − e‖ / ‖e‖",
}
BRANCHES = {
    "attn_ratio": "‖attention‖ / ‖stream‖",
    "mlp_ratio": "‖MLP‖ / ‖stream‖",
    "attn_cosine": "cosine (attention, stream)",
    "mlp_cosine": "cosine (MLP, stream)",
}
MASKING = {"masking": "at the norms’ own ε", "masking_usual": f"at the usual ε = {short(USUAL_EPS)}"}
OVER_STEPS = {
    field: (SIZES | BRANCHES)[field]
    for field in ("rms", "attn_ratio", "mlp_ratio", "flow", "attn_cosine", "mlp_cosine")
}
MEAN: dict[str, Any] = {"linestyle": ":", "linewidth": 1.1, "alpha": 0.8}  # beside the median, without marks


def stream_figure(rows: Sequence[StreamRow], models: Sequence[str]) -> Figure:
    """Size of the stream over layers, a row a measure, medians and means over tokens; left those after the first, right
    the first ones."""
    with style():
        figure, axes = panels(len(SIZES), 2, WIDTH, 1.0 + 2.0 * len(SIZES), sharex=True, sharey="row")
        for line, (field, title) in enumerate(SIZES.items()):
            for column, (group, tokens) in enumerate(GROUPS.items()):
                panel = axes[2 * line + column]
                _curves(panel, [row for row in rows if row.tokens == group], field, models)
                panel.set_title(f"{title}\n{tokens}" if line == 0 else title)
            log_scale(axes[2 * line], "y", labels=6)
        return _finish(figure, axes[-2:], axes[0], rows)


def branches_figure(rows: Sequence[StreamRow], models: Sequence[str], group: str) -> Figure:
    """What attention and MLP of each layer add, against the stream that they add it to: how much (medians and means
    over tokens), and how aligned (means)."""
    rows = [row for row in rows if row.tokens == group and row.layer >= 0]
    with style():
        figure, axes = panels(2, 2, WIDTH, 5.6, sharex=True, sharey="row")
        for panel, (field, title) in zip(axes, BRANCHES.items(), strict=True):
            _curves(panel, rows, field, models)
            panel.set_title(title)
        log_scale(axes[0], "y", labels=6)
        for panel in axes[2:]:
            _around_zero(panel)
        return _finish(figure, axes[2:], axes[0], rows)


def masking_figure(rows: Sequence[NormRow], models: Sequence[str]) -> Figure:
    """Masking ratio of norms in the order in which they run: at each norm's own epsilon, and at the usual one."""
    with style():
        figure, axes = panels(1, 2, WIDTH, 3.6)
        for panel, (field, title) in zip(axes, MASKING.items(), strict=True):
            for index, model in enumerate(models):
                own = [row for row in rows if row.model == model]
                panel.plot(_places(own), _percent(own, field), **_look(index, model))
            panel.set(title=title, xlabel="layer; norms in order, the last is the head’s")
            log_scale(panel, "y", labels=7)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes[0].set_ylabel("ε / (σ² + ε), %")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(models), 3))
        return figure


def steps_figure(rows: Sequence[StreamRow], group: str = "others") -> Figure:
    """One run: curves over layers, coloured by step; medians over tokens, of cosines means."""
    rows = [row for row in rows if row.tokens == group]
    steps = sorted({row.step or 0 for row in rows})
    colours, shade = mpl.colormaps["viridis_r"], Normalize(steps[0], max(steps[-1], steps[0] + 1))
    with style():
        figure, axes = panels(2, 3, WIDTH, 5.4, sharex=True)
        for panel, (field, title) in zip(axes, OVER_STEPS.items(), strict=True):
            for step in steps:
                own = [row for row in rows if (row.step or 0) == step]
                _line(panel, own, _typical(field), color=_dark(colours, shade(step)), linewidth=1)
            _title(panel, field, title)
        for panel in axes[3:]:
            _layers(panel, rows)
        _bar(figure, axes, colours, shade, "step")
        return figure


def trajectories_figure(rows: Sequence[StreamRow], group: str = "others") -> Figure:
    """One run: the same measures over steps, a line a layer."""
    rows = [row for row in rows if row.tokens == group]
    layers = sorted({row.layer for row in rows})
    colours, shade = mpl.colormaps["plasma"], Normalize(layers[0], max(layers[-1], layers[0] + 1))
    with style():
        figure, axes = panels(2, 3, WIDTH, 5.4, sharex=True)
        for panel, (field, title) in zip(axes, OVER_STEPS.items(), strict=True):
            for layer in layers:
                points = [(row.step or 0, getattr(row, _typical(field))) for row in rows if row.layer == layer]
                points = [(step, value) for step, value in points if value is not None]
                if points and not (field == "flow" and layer < 0):
                    xs, ys = zip(*points, strict=True)
                    panel.plot(xs, ys, color=_dark(colours, shade(layer)), linewidth=1.2, marker="o", markersize=2)
            _title(panel, field, title)
        for panel in axes[3:]:
            panel.set_xlabel("step")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        _bar(figure, axes, colours, shade, "layer (−1: embedded input)")
        return figure


def masking_steps_figure(rows: Sequence[NormRow]) -> Figure:
    """One run: masking ratio of norms over steps, a line a norm."""
    names = list(dict.fromkeys(row.norm for row in rows))
    places = dict(zip(names, _places([next(row for row in rows if row.norm == name) for name in names]), strict=True))
    colours, shade = mpl.colormaps["plasma"], Normalize(0, max(*places.values(), 1))
    with style():
        figure, axes = panels(1, 2, WIDTH, 3.4)
        for panel, (field, title) in zip(axes, MASKING.items(), strict=True):
            for name, place in places.items():
                own = [row for row in rows if row.norm == name]
                look = {"color": _dark(colours, shade(place)), "linewidth": 1.2, "marker": "o", "markersize": 2}
                panel.plot([row.step or 0 for row in own], _percent(own, field), **look)
            panel.set(title=title, xlabel="step")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
            log_scale(panel, "y", labels=7)
        axes[0].set_ylabel("ε / (σ² + ε), %")
        _bar(figure, axes, colours, shade, "layer; the last is the head’s norm")
        return figure


def _percent(rows: Sequence[NormRow], field: str) -> list[float]:
    """Zero has no place on a logarithmic axis."""
    return [100 * getattr(row, field) or math.nan for row in rows]


def _curves(panel: Axes, rows: Sequence[StreamRow], field: str, models: Sequence[str]) -> None:
    """A line a model; with a median the mean beside it, dotted."""
    for index, model in enumerate(models):
        own, look = [row for row in rows if row.model == model], _look(index, model)
        _line(panel, own, _typical(field), **look)
        if _typical(field) != field:
            _line(panel, own, field, color=look["color"], **MEAN)


def _typical(field: str) -> str:
    """What stands for most tokens: the median, and of cosines, which are bounded, the mean."""
    return field if field.endswith("cosine") else f"{field}_median"


def _line(panel: Axes, rows: Sequence[StreamRow], field: str, **look: Any) -> None:
    """Over layers; the flow of the embedded input is zero by definition, and has no place on a logarithmic axis."""
    rows = [row for row in rows if getattr(row, field) is not None and not (field.startswith("flow") and row.layer < 0)]
    panel.plot([row.layer for row in rows], [getattr(row, field) for row in rows], **look)


def _look(index: int, model: str) -> dict[str, Any]:
    """Eight are told apart: four colours with a marker each, then the same dashed with a hollow marker."""
    color, marker = ARMS[index % len(ARMS)]
    more = index >= len(ARMS)
    return {
        "color": color, "marker": marker, "markersize": 4, "label": model,
        "linestyle": "--" if more else "-", "markerfacecolor": "white" if more else color,
    }  # fmt: skip


def _places(rows: Sequence[NormRow]) -> list[float]:
    """Norms of a layer share its width; those behind the layers come after the last one."""
    last = max((row.layer for row in rows if row.layer is not None), default=-1)
    layers = [last + 1 if row.layer is None else row.layer for row in rows]
    return [layer + layers[:place].count(layer) / layers.count(layer) for place, layer in enumerate(layers)]


def _title(panel: Axes, field: str, title: str) -> None:
    panel.set_title(title)
    if field.endswith("cosine"):
        _around_zero(panel)
    else:
        log_scale(panel, "y", labels=6)


def _around_zero(panel: Axes) -> None:
    panel.axhline(0, color=GREY, linewidth=0.9)


def _dark(colours: Colormap, place: float) -> Any:
    """Without the map's lightest colours, which white paper swallows."""
    return colours(0.12 + 0.88 * place if colours.name.endswith("_r") else 0.88 * place)


def _bar(figure: Figure, axes: Sequence[Axes], colours: Colormap, shade: Normalize, label: str) -> None:
    shown = [_dark(colours, place / 255) for place in range(256)]
    bar = figure.colorbar(ScalarMappable(shade, ListedColormap(shown)), ax=list(axes), shrink=0.9, aspect=40)
    bar.set_label(label)
    bar.locator = MaxNLocator(integer=True, nbins=8)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _layers(panel: Axes, rows: Sequence[StreamRow]) -> None:
    """Ticks at layers, and at e where it is shown."""
    first, last = min(row.layer for row in rows), max(row.layer for row in rows)
    ticks = [int(tick) for tick in MaxNLocator(8, integer=True).tick_values(0, last) if 0 <= tick <= last]
    if first < 0:
        ticks = [-1, *(tick for tick in ticks if tick or last < 15)]  # 0 would touch it
    panel.set_xticks(ticks, ["e" if tick < 0 else str(tick) for tick in ticks])
    panel.set_xlabel("layer (e: embedded input)" if first < 0 else "layer")


def _finish(figure: Figure, lowest: Sequence[Axes], first: Axes, rows: Sequence[StreamRow]) -> Figure:
    for panel in lowest:
        _layers(panel, rows)
    handles, labels = first.get_legend_handles_labels()
    handles, labels = [*handles, Line2D([], [], color=GREY, **MEAN)], [*labels, "mean over tokens; lines: medians"]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3))
    return figure
