"""How figures look: one place for colours, sizes and fonts, and for turning a figure into inline SVG."""

import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

# Okabe and Ito's colours, which people with any colour vision tell apart; shapes and labels say the same again.
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#00785A", "#6E6E6E"
BEFORE, AFTER = VERMILLION, BLUE
# Colour and marker of what is compared: the first four are clearest together, eight are the most a figure holds.
ARMS = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), ("#8A4B9E", "D"),
        ("#C28800", "v"), ("#2E2E2E", "P"), ("#4FA8DC", "X"), ("#C65D93", "*"))  # fmt: skip
INK, FAINT = "#222222", "#DDDDDD"
WIDTH = 9.6  # inches; a page's column

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MINUS = "−"

_CJK = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei",
        "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei")  # fmt: skip


def fonts() -> list[str]:
    """DejaVu Sans, and the Chinese fonts that this machine has as fallbacks."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _CJK if name in known)]


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib settings for the time of a figure's making; nothing global is left changed."""
    settings: dict[Any, Any] = {
        "font.family": fonts(),
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelsize": 10,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.7,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.6,
        "figure.facecolor": "white",
        "figure.dpi": 100,
        "svg.fonttype": "none",  # text stays text: searchable, and set in the reader's fonts, Chinese included
        "svg.hashsalt": "seedbed",
    }
    with mpl.rc_context(settings):
        yield


def panels(rows: int, columns: int, width: float, height: float, **options) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` x ``height`` inches with rows x columns axes, laid out without overlaps; no pyplot."""
    # wspace: the last tick of a panel keeps clear of the first one of the next
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.06))
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def labelled(axes: Iterable[Axes]) -> list[Line2D]:
    """For a legend: each labelled line once, whichever panel has it."""
    lines = {str(line.get_label()): line for panel in axes for line in panel.get_lines()}
    return [line for label, line in lines.items() if not label.startswith("_")]


def log_scale(axes: Axes, which: Literal["x", "y"], labels: int = 12) -> None:
    """Makes an axis, whose data are drawn, logarithmic, with plain labels: at most so many, at least two however short
    it is. Where no value is positive it stays linear."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if not math.isfinite(axis.get_minpos()):
        return
    axes.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if 0 < low < high else 0  # no mark, or one
    if decades < 1:
        locator = MaxNLocator(4, steps=[1, 2, 5, 10])
    else:
        locator = LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1,), numticks=labels)
    axis.set_major_locator(locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda x, _: short(x))


def log_widths(axes: Axes, widths: Sequence[int]) -> None:
    """Makes the x axis logarithmic, with a label at each of a few ``widths`` and none between."""
    axes.set_xscale("log")
    axes.set_xticks(widths, [short(width) for width in widths])
    axes.xaxis.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """A round number in as few characters as say it, as on axes: 0.02, 10⁻⁵, 3·10⁻⁶."""
    text = f"{value:g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
        text = power if mantissa == "1" else f"{mantissa}·{power}"
    return text.replace("-", MINUS)


def figure_svg(figure: Figure, description: str = "") -> str:
    """The figure as an ``<svg>`` element to put into a page: the same bytes for the same figure, no outside reference.

    ``description`` is what a screen reader says.
    """
    buffer = io.StringIO()
    with style(), warnings.catch_warnings():
        # the reader's own fonts set the text; that the layout had none to measure a glyph with does not matter
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]  # neither XML declaration nor document type
    svg = re.sub(r'<g id="[\w.]+">', "<g>", svg)  # names such as axes_1 would repeat on a page
    # a hundredth of a point is far below a pixel, and six digits are most of a curve's bytes
    svg = re.sub(r' d="[^"]+"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]).replace("\n", ""), svg)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
