"""Templates to pages: one HTML file that needs no network, in which every text that is not ours is escaped."""

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from seedbed.report.style import MINUS, SUPERSCRIPTS, figure_svg
from seedbed.train.progress import duration


def render(template: str, **context: Any) -> str:
    """The page of a template in this folder; a name that ``context`` lacks is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "count": count, "duration": duration}
    return environment.get_template(template).render(context)


def inline(figure: Figure, description: str) -> Markup:
    """The figure to put into a page; its SVG is ours, and escaped by matplotlib."""
    return Markup(figure_svg(figure, description))


def number(value: float | None, digits: int = 3) -> str:
    """``value`` to so many significant digits, with a true minus sign; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}".removesuffix(".").replace("inf", "∞")
    if "e" in text and 1 <= abs(value) < 1e6:
        text = f"{value:,.0f}"
    elif "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return text.replace("-", MINUS)


def signed(value: float | None, digits: int = 3) -> str:
    """``value`` to so many decimals with its sign (+ for 0); a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", MINUS)


def count(value: float) -> str:
    """A whole number in full, with separators."""
    return f"{value:,.0f}"
