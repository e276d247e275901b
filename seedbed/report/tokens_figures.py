"""Gains of one model over another on the same tokens, as figures."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seedbed.report.render import number
from seedbed.report.style import BLUE, GREY, INK, VERMILLION, WIDTH, log_scale, panels, style
from seedbed.report.tokens_rows import GroupRow, HistogramRow, Mean, TokenGains

GAIN, PROBABILITY_GAIN = "gain Δℓ (nats per token)", "symmetric probability gain"


def histograms_figure(result: TokenGains) -> Figure:
    """How many tokens gain how much, in nats and as probability gain; logarithmic counts."""
    with style():
        figure, (left, right) = panels(1, 2, WIDTH, 3.4)
        _histogram(left, result.gain_histogram, result.overall.gain, f"{GAIN}; outermost bars: and beyond")
        _histogram(right, result.probability_gain_histogram, result.overall.probability_gain, PROBABILITY_GAIN)
        left.set_ylabel("tokens")
        return figure


def _histogram(axes: Axes, rows: Sequence[HistogramRow], mean: Mean, label: str) -> None:
    centres = [(row.low + row.high) / 2 for row in rows]
    width = rows[0].high - rows[0].low
    step = width / 2  # the bar around 0 is neither
    colours = [GREY if abs(centre) < step else BLUE if centre > 0 else VERMILLION for centre in centres]
    axes.bar(centres, [row.tokens for row in rows], width, color=colours, alpha=0.75, linewidth=0)
    axes.axvline(mean.mean, color=INK, linewidth=1.2, linestyle="--")
    log_scale(axes, "y", labels=6)
    axes.set(xlabel=label, xlim=(rows[0].low, rows[-1].high), title=f"mean {number(mean.mean)} (dashed)")


def bins_figure(bins: Sequence[GroupRow]) -> Figure:
    """Mean gain of each bin of difficulty with its interval, easy tokens left."""
    with style():
        figure, (left, right) = panels(1, 2, WIDTH, 3.6)
        for axes, what, label in ((left, "gain", GAIN), (right, "probability_gain", PROBABILITY_GAIN)):
            means: list[Mean] = [getattr(row, what) for row in bins]
            places = range(len(bins))
            axes.axhline(0, color=GREY, linewidth=1)
            for place, mean in zip(places, means, strict=True):
                _mark(axes, place, mean, vertical=True)
            axes.plot(places, [mean.mean for mean in means], color=GREY, linewidth=1, zorder=1)
            axes.set_xticks(places, [_span(row) for row in bins], rotation=55, ha="right", rotation_mode="anchor")
            axes.set_ylabel(f"mean {label}")
            axes.grid(visible=False, axis="x")
        figure.supxlabel("difficulty (mean loss of the two, nats), ten bins of equal count", fontsize=10)
        return figure


def _span(row: GroupRow) -> str:
    return f"{number(row.lowest, 2)}–{number(row.highest, 2)}"


def groups_figure(groups: Sequence[GroupRow]) -> Figure:
    """Mean gain of each group with its interval; a hollow mark where there are too few documents for one."""
    with style():
        figure, panel = panels(1, 2, WIDTH, 1.1 + 0.3 * len(groups), sharey=True)
        places = range(len(groups))
        for axes, what, label in zip(panel, ("gain", "probability_gain"), (GAIN, PROBABILITY_GAIN), strict=True):
            axes.axvline(0, color=GREY, linewidth=1)
            for place, row in zip(places, groups, strict=True):
                _mark(axes, place, getattr(row, what), vertical=False)
            axes.set_xlabel(f"mean {label}")
            axes.grid(visible=False, axis="y")
        names = [f"{row.name} ({row.documents:,})" for row in groups]
        panel[0].set_yticks(places, names)
        panel[0].set_ylim(len(groups) - 0.5, -0.5)
        panel[0].set_ylabel("group (documents)")
        return figure


def _mark(axes: Axes, place: float, mean: Mean, vertical: bool) -> None:
    """A mean, blue and round where B is better, vermillion and square where A is, with its interval."""
    colour, marker = (BLUE, "o") if mean.mean >= 0 else (VERMILLION, "s")
    known = mean.low is not None and mean.high is not None
    x, y = (place, mean.mean) if vertical else (mean.mean, place)
    axes.plot(x, y, marker, color=colour, markersize=6, markerfacecolor=colour if known else "white", zorder=3)
    if mean.low is not None and mean.high is not None:
        line = ([place, place], [mean.low, mean.high])
        axes.plot(*(line if vertical else line[::-1]), color=colour, linewidth=2, zorder=2, solid_capstyle="butt")
