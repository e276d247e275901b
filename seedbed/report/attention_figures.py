"""Figures of an analysis of attention: every checkpoint has its colour and marker, the same in all of them."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.report.attention_rows import THRESHOLD, HeadRow, LayerRow, PlaceRow
from seedbed.report.style import ARMS, GREY, INK, WIDTH, log_scale, panels, style


def heads_figure(heads: Sequence[HeadRow]) -> Figure:
    """Sink score of every head, layers by heads, a panel a checkpoint; a ring marks the sink heads."""
    names = list(dict.fromkeys(row.checkpoint for row in heads))
    deepest = max(row.layer for row in heads) + 1
    highest = max(row.sink for row in heads)
    columns = min(2, len(names))
    lines = math.ceil(len(names) / columns)
    with style():
        figure, axes = panels(lines, columns, WIDTH, lines * min(6.0, 1.4 + 0.2 * max(deepest, 6)), sharey=True)
        for panel, name in zip(axes, names, strict=False):
            own = [row for row in heads if row.checkpoint == name]
            grid = np.full((deepest, max(row.head for row in own) + 1), np.nan)
            for row in own:
                grid[row.layer, row.head] = row.sink
            image = panel.imshow(grid, cmap="cividis", vmin=0, vmax=highest, aspect="auto", interpolation="nearest")
            above = [(row.head, row.layer) for row in own if row.sink > THRESHOLD]
            panel.plot(*zip(*above, strict=True), "o", color=INK, mfc="none", markersize=4) if above else None
            panel.set_title(name)
            panel.set_xlabel("head")
            panel.grid(visible=False)
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True, nbins=12))
            figure.colorbar(image, ax=panel, label="sink score", pad=0.02)
        for panel in axes[len(names) :]:
            panel.set_visible(False)
        figure.supylabel("layer", fontsize=10)
        return figure


def sink_figure(layers: Sequence[LayerRow], heads: Sequence[HeadRow]) -> Figure:
    """Sink score over layers beside even attention, and the share of heads that are sink heads."""
    with style():
        figure, (score, above) = panels(1, 2, WIDTH, 3.8, width_ratios=(3, 2))
        names = _names(layers)
        for index, name in enumerate(names):
            color, marker = ARMS[index % len(ARMS)]
            own = [row for row in layers if row.checkpoint == name]
            at = [row.layer for row in own]
            means = [row.sink for row in own]
            score.plot(at, means, color=color, marker=marker, markersize=5, label=name)
            ends = np.array([(row.sink_low, row.sink_high) for row in own], dtype=float)  # NaN where there is none
            score.fill_between(at, ends[:, 0], ends[:, 1], color=color, alpha=0.2, linewidth=0)
            _dots(score, [(row.layer, row.sink) for row in heads if row.checkpoint == name], color)
            size = 5 + 3 * (len(names) - 1 - index)  # shares of all may be 0: marks within each other are seen
            above.plot(at, [100 * row.above for row in own], color=color, marker=marker, markersize=size)
        _even(score, layers, "uniform_sink")
        score.set(xlabel="layer", ylabel="sink score", ylim=(0, 1.08 * score.dataLim.y1))
        above.set(xlabel="layer", ylabel=f"heads above {THRESHOLD:g}, %", ylim=(-3, 103))
        return _finished(figure, (score, above))


def entropy_figure(layers: Sequence[LayerRow], heads: Sequence[HeadRow]) -> Figure:
    """Attention entropy over layers, in nats and against even attention."""
    with style():
        figure, (nats, share) = panels(1, 2, WIDTH, 3.8)
        for index, name in enumerate(_names(layers)):
            color, marker = ARMS[index % len(ARMS)]
            own = [row for row in layers if row.checkpoint == name]
            at = [row.layer for row in own]
            nats.plot(at, [row.entropy for row in own], color=color, marker=marker, markersize=5, label=name)
            share.plot(at, [100 * row.entropy_share for row in own], color=color, marker=marker, markersize=5)
            of_heads = [row for row in heads if row.checkpoint == name]
            _dots(nats, [(row.layer, row.entropy) for row in of_heads], color)
            _dots(share, [(row.layer, 100 * row.entropy_share) for row in of_heads], color)
        _even(nats, layers, "uniform_entropy")
        nats.set(xlabel="layer", ylabel="attention entropy, nats", ylim=(0, 1.05 * nats.dataLim.y1))
        share.set(xlabel="layer", ylabel="of even attention’s entropy, %", ylim=(0, 103))
        return _finished(figure, (nats, share))


def places_figure(places: Sequence[PlaceRow]) -> Figure:
    """Weight on each of a document's first tokens: mean over layers, and each layer faintly."""
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 3.8)
        for index, name in enumerate(_names(places)):
            color, marker = ARMS[index % len(ARMS)]
            own = [row for row in places if row.checkpoint == name]
            by_layer: dict[int, list[float]] = {}
            for row in own:
                by_layer.setdefault(row.layer, []).append(row.weight)
            curves = np.array(list(by_layer.values()))  # [layers, places]
            at = range(curves.shape[1])
            axes.plot(at, curves.T, color=color, linewidth=0.8, alpha=0.25)
            axes.plot(at, curves.mean(0), color=color, marker=marker, markersize=5, label=name)
        first = [row for row in places if (row.checkpoint, row.layer) == (places[0].checkpoint, places[0].layer)]
        axes.plot(
            [row.place for row in first], [row.uniform for row in first], color=GREY, linestyle="--", linewidth=1.2,
            label="even attention",
        )  # fmt: skip
        axes.set(xlabel="token of the document (0 is its first)", ylabel="attention weight")
        log_scale(axes, "y")
        return _finished(figure, (axes,))


def _names(rows: Sequence[LayerRow] | Sequence[PlaceRow]) -> list[str]:
    return list(dict.fromkeys(row.checkpoint for row in rows))


def _dots(axes: Axes, points: Sequence[tuple[int, float]], color: str) -> None:
    axes.plot(*zip(*points, strict=True), "o", color=color, markersize=3, alpha=0.35, markeredgewidth=0)


def _even(axes: Axes, layers: Sequence[LayerRow], field: str) -> None:
    """Even attention over the layers of each checkpoint; equal curves are drawn once."""
    curves = {
        tuple((row.layer, getattr(row, field)) for row in layers if row.checkpoint == name): None
        for name in _names(layers)
    }
    for index, curve in enumerate(curves):
        label = None if index else "even attention"
        axes.plot(*zip(*curve, strict=True), color=GREY, linestyle="--", linewidth=1.2, label=label)


def _finished(figure: Figure, axes: Sequence[Axes]) -> Figure:
    for panel in axes:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
