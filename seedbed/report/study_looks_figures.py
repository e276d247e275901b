"""Figures of what a study looked at in its models: streams, gradients, weights, tokens."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seedbed.report.study_figures import MILLION, arm_look, bars, grid, legend, size_look
from seedbed.report.study_trend_rows import GradientRow, LayerRow, LookRow, TokenGainRow, WeightsRow
from seedbed.report.style import GREY, WIDTH, log_scale, panels, style

LOOKS = {
    ("flow", ""): "residual flow ‖h − e‖ / ‖e‖",
    ("masking", "first norm"): "masking m of the first norm",
    ("masking", "worst norm"): "masking m of the worst norm",
    ("sink: largest layer", ""): "sink score of the largest layer",
}
PROFILED = {"rms": "RMS", "rank_share": "rank / width"}
"""Measures that are drawn over depth: the size of entries, and entropy rank over the smaller side."""
TRACKED = {"stable_rank": "stable rank", "row_cosine": "mean |cos| of rows"}


def looks_figure(rows: Sequence[LookRow], arms: Sequence[str], sizes: Sequence[str]) -> Figure:
    """What was observed in each arm: before the first step hollow, after the last filled; a colour a size."""
    shown = {key: told for key, told in LOOKS.items() if any((row.measure, row.part) == key for row in rows)}
    with style():
        figure, axes = panels(len(shown), 1, WIDTH, 1.2 + 1.9 * len(shown), sharex=True)
        for panel, (key, told) in zip(axes, shown.items(), strict=True):
            for index, size in enumerate(sizes):
                for when in ("before", "after"):
                    own = [r for r in rows if (r.measure, r.part, r.size, r.when) == (*key, size, when)]
                    look: dict[str, Any] = size_look(index, len(sizes), size) | {"linestyle": "none"}
                    if when == "before":
                        look |= {"markerfacecolor": "white", "label": None}
                    aside = 0.11 * (index - (len(sizes) - 1) / 2) - (0.03 if when == "before" else -0.03)
                    bars(panel, [arms.index(row.arm) + aside for row in own], own, **look)
            panel.set_title(told)
            even = [r.mean for r in rows if r.measure == "sink: uniform"] if key[0].startswith("sink") else []
            if even:
                panel.axhline(even[0], color=GREY, linewidth=0.9, linestyle=":")
            if all(row.mean > 0 for row in rows if (row.measure, row.part) == key):
                log_scale(panel, "y", labels=5)
        turned = max(map(len, arms)) > 84 / len(arms)
        axes[-1].set_xticks(range(len(arms)), arms, rotation=20 if turned else 0, ha="right" if turned else "center")
        return legend(figure, axes)


def gradients_figure(rows: Sequence[GradientRow], arms: Sequence[str], sizes: Sequence[str]) -> Figure:
    """Median gradient norm up to each evaluation over tokens, a panel a size; means over seeds."""
    drawn = [size for size in sizes if any(row.size == size for row in rows)]
    with style():
        figure, axes = grid(len(drawn), 2.5)
        for panel, size in zip(axes, drawn, strict=True):
            for index, arm in enumerate(arms):
                own = [row for row in rows if (row.size, row.arm) == (size, arm)]
                panel.plot([row.tokens / MILLION for row in own], [row.median for row in own], **arm_look(index, arm))
            panel.set(title=size, xlabel="million tokens")
            log_scale(panel, "x", labels=5)
            log_scale(panel, "y", labels=5)
        axes[0].set_ylabel("gradient norm")
        return legend(figure, axes)


def weights_figure(rows: Sequence[WeightsRow], arms: Sequence[str], size: str) -> Figure:
    """Measures of components over tokens at one size, a column a measure, a line of panels a component."""
    rows = [row for row in rows if row.size == size]
    components = list(dict.fromkeys(row.component for row in rows))
    with style():
        figure, axes = panels(len(components), 2, WIDTH, 0.9 + 1.6 * len(components), sharex=True)
        for line, component in enumerate(components):
            for column, (measure, told) in enumerate(TRACKED.items()):
                panel = axes[2 * line + column]
                for index, arm in enumerate(arms):
                    own = [r for r in rows if (r.component, r.measure, r.arm) == (component, measure, arm)]
                    bars(panel, [row.tokens / MILLION for row in own], own, **arm_look(index, arm) | {"markersize": 3})
                panel.set_title(f"{component}: {told}")
        for panel in axes[-2:]:
            panel.set_xlabel("million tokens")
        return legend(figure, axes)


def layers_figure(rows: Sequence[LayerRow], arms: Sequence[str], size: str, measure: str) -> Figure:
    """A measure of each component over depth: before the first step left, after the last right, a line of panels a
    component, which share their scale."""
    rows = [row for row in rows if (row.size, row.measure) == (size, measure)]
    components = list(dict.fromkeys(row.component for row in rows))
    with style():
        figure, axes = panels(
            len(components), 2, WIDTH, 0.9 + 1.5 * len(components), sharex=True, sharey="row"
        )  # fmt: skip
        for line, component in enumerate(components):
            for column, (when, told) in enumerate((("before", "before training"), ("after", "after training"))):
                panel = axes[2 * line + column]
                for index, arm in enumerate(arms):
                    own = [r for r in rows if (r.component, r.when, r.arm) == (component, when, arm)]
                    own.sort(key=lambda row: row.layer)
                    bars(panel, [row.layer for row in own], own, **arm_look(index, arm))
                panel.set_title(f"{component}, {told}")
                panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        for panel in axes[-2:]:
            panel.set_xlabel("layer")
        for panel in axes[::2]:
            panel.set_ylabel(PROFILED[measure])
        return legend(figure, axes)


def token_gains_figure(rows: Sequence[TokenGainRow], sizes: Sequence[str]) -> Figure:
    """Gain over the baseline by tenths of difficulty, a panel a comparison, a line a size."""
    rows = [row for row in rows if row.tenth]
    kinds = list(dict.fromkeys((row.others, row.level) for row in rows))
    with style():
        figure, axes = grid(len(kinds), 2.6)
        for panel, (others, level) in zip(axes, kinds, strict=True):
            for index, size in enumerate(sizes):
                own = [row for row in rows if (row.others, row.level, row.size) == (others, level, size)]
                look = size_look(index, len(sizes), size)
                low = [0.0 if row.gain_low is None else row.gain - row.gain_low for row in own]
                high = [0.0 if row.gain_high is None else row.gain_high - row.gain for row in own]
                if own:
                    at = [row.tenth for row in own], [row.gain for row in own]
                    panel.errorbar(*at, [low, high], capsize=2.5, elinewidth=1, **look)
            panel.axhline(0, color=GREY, linewidth=0.9)
            panel.set(title=", ".join(filter(None, (level, others))), xlabel="tenth of difficulty (10: hardest)")
            panel.set_xticks(range(1, 11))
        axes[0].set_ylabel("gain (nats / token)")
        return legend(figure, axes)
