"""Histograms of gradients over a run as one figure."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.facts.fact import in_order
from seedbed.measure.gradients import DECADES
from seedbed.report.style import VERMILLION, WIDTH, panels, style

MAX_COLUMNS = 100  # a panel shows hardly more
LEAST_SHARE = 1e-3  # of a decade that is shown


class _Look(NamedTuple):
    """The gradient of a role at a step, all layers together."""

    shares: list[float]  # of the entries that are not zero, in each decade
    rms: float  # of all


def gradients_figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """``rows`` of kind ``gradients``, evenly thinned: a panel a role, with the share of its entries in each decade of
    size as colour over the steps, and their root mean square as a line. The outermost decades are open.
    """
    rows = rows[:: math.ceil(len(rows) / MAX_COLUMNS)]
    steps, looks = [row["step"] for row in rows], [_by_role(row["components"]) for row in rows]
    roles = in_order(role for look in looks for role in look)
    everything = [one.shares for look in looks for one in look.values()]
    filled = [k for k, shares in enumerate(zip(*everything, strict=True)) if max(shares) > LEAST_SHARE] or [0]
    low, high = min(filled), max(filled) + 1
    exponents = [DECADES[0] - 1 + k for k in range(low, high + 1)]  # bounds of the bins shown
    edges = [steps[0] - 0.5, *((a + b) / 2 for a, b in pairwise(steps)), steps[-1] + 0.5]
    columns = min(4, len(roles))
    lines = math.ceil(len(roles) / columns)
    with style():
        figure, axes = panels(lines, columns, WIDTH, 0.9 + 1.7 * lines, sharex=True, sharey=True)
        shown = []
        for panel, role in zip(axes, roles, strict=False):
            own = [look[role] for look in looks]
            shares = [[one.shares[k] for one in own] for k in range(low, high)]
            shown.append(panel.pcolormesh(edges, exponents, shares, cmap="Blues", vmin=0, vmax=0.6, rasterized=True))
            scales = [math.log10(one.rms) if one.rms else math.nan for one in own]
            panel.plot(steps, scales, color=VERMILLION, marker=".", markersize=4, label="root mean square")
            panel.set_title(role)
            panel.grid(visible=False)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4, min_n_ticks=1))
            panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            panel.yaxis.set_major_formatter(lambda exponent, _: f"1e{exponent:.0f}")
        for panel in axes[len(roles) :]:
            panel.set_visible(False)
        for panel in axes[: len(roles)][-columns:]:  # the lowest of each column
            panel.tick_params(labelbottom=True)
        figure.supxlabel("step", fontsize=10)
        figure.supylabel("|entry|", fontsize=10)
        figure.colorbar(
            shown[0], ax=axes, label="share of entries that are not zero", shrink=0.7, extend="max", pad=0.02
        )
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right")
        return figure


def _by_role(components: dict[str, dict[str, Any]]) -> dict[str, _Look]:
    layers: dict[str, list[dict[str, Any]]] = {}
    for name, row in components.items():
        layers.setdefault(name.partition("/")[0], []).append(row)
    looks = {}
    for role, rows in layers.items():
        entries = sum(row["entries"] for row in rows)
        counts = [sum(decade) for decade in zip(*(row["decades"] for row in rows), strict=True)]
        shares = [count / max(sum(counts), 1) for count in counts]
        looks[role] = _Look(shares, math.sqrt(sum(row["norm"] ** 2 for row in rows) / entries))
    return looks
