"""Figures of a preflight: every arm has its colour and marker, the same in all of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.facts.fact import in_order
from seedbed.measure.residual import USUAL_EPS, NormMasking
from seedbed.report.preflight_rows import Arm, CoordCheck
from seedbed.report.render import number, signed
from seedbed.report.style import ARMS, GREY, INK, WIDTH, log_scale, log_widths, panels, short, style


def masking_figure(arms: Sequence[Arm]) -> Figure:
    """Masking ratio of the norms of the stream, from first to last: at the model's epsilon, and at the usual one."""
    eps = arms[0].residual.norms[0].eps
    with style():
        figure, axes = panels(1, 2, WIDTH, 3.4, sharey=True)
        of_panels: tuple[tuple[str, Callable[[NormMasking], float]], ...] = (
            (f"at the model’s ε = {short(eps)}", lambda norm: norm.masking),
            (f"at the usual ε = {short(USUAL_EPS)}", lambda norm: norm.masking_usual),
        )
        for panel, (title, masking) in zip(axes, of_panels, strict=True):
            for index, arm in enumerate(arms):
                shares = [100 * masking(norm) for norm in arm.residual.norms]
                panel.plot([place / 2 for place in range(len(shares))], shares, **look(index, arm))
            panel.set_title(title)
            panel.set_xlabel("layer: norms of attention, then MLP; the last is the head’s")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        log_scale(axes[0], "y")
        axes[0].set_ylabel("ε / (σ² + ε), %")
        return _with_legend(figure, axes[0], arms)


def residual_figure(arms: Sequence[Arm]) -> Figure:
    """Each branch against the stream before it, and the flow, over layers."""
    with style():
        figure, axes = panels(1, 3, WIDTH, 3.4)
        titles = {"attn": "attention / stream", "mlp": "MLP / stream", "flow": "flow ‖h − e‖ / ‖e‖"}
        for panel, (field, title) in zip(axes, titles.items(), strict=True):
            for index, arm in enumerate(arms):
                _over_layers(panel, [getattr(layer, field) for layer in arm.residual.layers], index, arm)
            panel.set_title(title)
            log_scale(panel, "y")
        return _with_legend(figure, axes[0], arms)


def budget_figure(arms: Sequence[Arm]) -> Figure:
    """Predicted (ring) and measured (dot) size of each quantity, a panel an arm."""
    quantities = [row.quantity for row in arms[0].budget]
    with style():
        figure, axes = panels(1, len(arms), WIDTH, 1.3 + 0.3 * len(quantities), sharey=True)
        for index, (panel, arm) in enumerate(zip(axes, arms, strict=True)):
            color = ARMS[index % len(ARMS)][0]
            for place, row in enumerate(arm.budget):
                ends = [value for value in (row.predicted, row.measured) if value]
                panel.plot(ends, [place] * len(ends), color=GREY, linewidth=1.2, zorder=2)
                if row.predicted:
                    panel.plot(row.predicted, place, "o", color=INK, mfc="white", mew=1.4, markersize=9, zorder=3)
                if row.measured:
                    panel.plot(row.measured, place, "o", color=color, markersize=5.5, zorder=4)
            panel.set_title(fill(arm.title, 80 // len(arms)))
            panel.grid(axis="y", visible=False)
            log_scale(panel, "x", labels=8 // len(arms) + 1)
        axes[0].set_yticks(range(len(quantities)), quantities)
        axes[0].set_ylim(len(quantities) - 0.4, -0.6)
        handles = [
            axes[0].plot([], [], "o", color=INK, mfc="white", mew=1.4, markersize=9)[0],
            axes[0].plot([], [], "o", color=GREY, markersize=5.5)[0],
        ]
        figure.legend(handles, ["predicted", "measured"], loc="outside lower center", ncols=2)
        return figure


def precision_figure(arms: Sequence[Arm]) -> Figure:
    """Error of the bf16 stream over layers, and the share of the first update that bf16 weights would lose."""
    roles = in_order(row.role for arm in arms for row in arm.first.lost)
    with style():
        figure, (error, lost) = panels(1, 2, WIDTH, 4.0)
        for index, arm in enumerate(arms):
            _over_layers(error, [100 * row.error for row in arm.precision], index, arm)
            _dots(lost, [(row.role, 100 * row.share) for row in arm.first.lost], index, arm, roles)
        error.set_title("error of the bf16 stream, %")
        error.set_xlabel("layer; the last point is the logits")
        error.set_ylim(bottom=0)
        lost.set_title("update lost in bf16 weights, %")
        lost.set_xlim(-3, 103)
        return _with_legend(figure, error, arms)


def gradient_figure(arms: Sequence[Arm]) -> Figure:
    """First gradient of each component: of an entry, and of the whole against its weights."""
    roles = in_order(row.role for arm in arms for row in arm.first.gradients)
    with style():
        figure, axes = panels(1, 2, WIDTH, 1.6 + 0.28 * len(roles), sharey=True)
        for panel, (field, title) in zip(
            axes, (("rms", "rms of the gradient"), ("relative", "‖gradient‖ / ‖weights‖")), strict=True
        ):
            for index, arm in enumerate(arms):
                _dots(
                    panel, [(row.role, getattr(row, field) or None) for row in arm.first.gradients], index, arm, roles
                )
            panel.set_title(title)
            log_scale(panel, "x")
        return _with_legend(figure, axes[0], arms)


def sink_figure(arms: Sequence[Arm]) -> Figure:
    """Sink score over layers at step 0, beside that of uniform attention."""
    uniform = arms[0].sink.uniform
    with style():
        figure, (axes,) = panels(1, 1, WIDTH, 3.2)
        for index, arm in enumerate(arms):
            _over_layers(axes, arm.sink.layers, index, arm)
        axes.axhline(uniform, color=GREY, linestyle="--", linewidth=1.2, label=f"uniform attention, {number(uniform)}")
        axes.set_ylabel("sink score")
        axes.set_ylim(0, 1.15 * axes.dataLim.y1)
        figure.legend(loc="outside lower center", ncols=2)
        return figure


def width_figure(arms: Sequence[Arm]) -> Figure:
    """Each branch over widths, with the slopes in the legend."""
    branches = [row.branch for row in arms[0].slopes]
    with style():
        figure, axes = panels(1, len(branches), WIDTH, 3.2 + 0.22 * len(arms))
        for column, (panel, branch) in enumerate(zip(axes, branches, strict=True)):
            for index, arm in enumerate(arms):
                row = arm.slopes[column]
                told = ", ".join(f"{each.branch} {round(each.slope, 2) + 0.0:.2f}" for each in arm.slopes)
                panel.plot(row.widths, row.ratios, **{**look(index, arm), "label": f"{arm.title}: {told}"})
            panel.set_title(branch)
            panel.set_xlabel("width d")
            log_widths(panel, arms[0].slopes[column].widths)
            log_scale(panel, "y")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", title="slopes", ncols=1)
        return figure


def coordcheck_figure(check: CoordCheck) -> Figure:
    """Change of each activation over widths, a panel each, a line a step; its slopes stand in the panel."""
    names = list(dict.fromkeys(row.activation for row in check.rows))
    columns = min(4, len(names))
    lines = math.ceil(len(names) / columns)
    with style():
        figure, axes = panels(lines, columns, WIDTH, 1.0 + 1.9 * lines, sharex=True)
        for panel, name in zip(axes, names, strict=False):
            rows = [row for row in check.rows if row.activation == name and row.slope is not None]
            for row in rows:
                color, marker = ARMS[(row.step - 1) % len(ARMS)]
                label = f"after step {row.step}"
                panel.plot(check.widths, row.changes, color=color, marker=marker, markersize=4.5, label=label)
            panel.set_title(name)
            told = " ".join(signed(row.slope, 2) for row in rows)
            panel.text(0.04, 0.04, f"slopes {told}" if rows else "no change", transform=panel.transAxes, fontsize=8)
            if rows:  # at least two decades, so that flat looks flat, and room for the slopes below
                low, high = math.log10(panel.dataLim.y0), math.log10(panel.dataLim.y1)
                spare = max(0.05 * (high - low), (2 - (high - low)) / 2)
                panel.set_ylim(10 ** (low - spare - 0.2 * (high - low + 2 * spare)), 10 ** (high + spare))
            log_scale(panel, "y", labels=4)
            log_widths(panel, check.widths)
        for panel in axes[len(names) - columns : len(names)]:  # the lowest of each column
            panel.tick_params(labelbottom=True)
        for panel in axes[len(names) :]:
            panel.set_visible(False)
        figure.supxlabel("width d", fontsize=10)
        figure.supylabel("rms change", fontsize=10)
        handles, labels = max((panel.get_legend_handles_labels() for panel in axes), key=lambda told: len(told[0]))
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), title=check.title)
        return figure


def look(index: int, arm: Arm) -> dict[str, Any]:
    """How the curve of an arm is drawn."""
    color, marker = ARMS[index % len(ARMS)]
    line = "-" if index < len(ARMS) else "--"
    return {"color": color, "marker": marker, "markersize": 4.5, "linestyle": line, "label": arm.title}


def _over_layers(axes: Axes, values: Sequence[float], index: int, arm: Arm) -> None:
    axes.plot(range(len(values)), values, **look(index, arm))
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def _dots(axes: Axes, values: Iterable[tuple[str, float | None]], index: int, arm: Arm, roles: list[str]) -> None:
    """A mark for each (role, value), roles downwards; nothing where there is no value."""
    points = [(value, roles.index(role)) for role, value in values if value is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], **{**look(index, arm), "linestyle": "none"})
    axes.set_yticks(range(len(roles)), roles)
    axes.set_ylim(len(roles) - 0.4, -0.6)


def _with_legend(figure: Figure, axes: Axes, arms: Sequence[Arm]) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(arms), 3))
    return figure
