"""The folder of an analysis: the page, its tables as CSV, everything as JSON, each figure as SVG and PNG."""

import io
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from seedbed.files.atomic import write_atomic
from seedbed.measure.table import Rows
from seedbed.report.sections import Page, page_html
from seedbed.report.style import style

PAGE = "report.html"
RESULT = "result.json"
PNG_DPI = 200


def write_results(folder: Path, page: Page, tables: Mapping[str, Rows[Any]], result: Any) -> Path:
    """Write ``report.html``, ``NAME.csv`` of each table, ``figures/NAME.svg`` and ``.png``, and last ``result.json``,
    JSON values that hold everything; returns the page's path. Tables and figures of an earlier result go, which this
    one has not. Warns once of characters that no font here has.
    """
    unset: set[str] = set()
    for picture in page.pictures:
        place = folder / "figures" / picture.name
        write_atomic(place.with_suffix(".svg"), str(picture.svg))
        write_atomic(place.with_suffix(".png"), _png(picture.figure, unset))
    if unset:
        warnings.warn(
            f"no font here has {len(unset)} characters ({''.join(sorted(unset)[:8])}), so that they are boxes in the "
            "PNG figures; the page and SVG have them; install a font such as Noto Sans CJK",
            stacklevel=2,
        )
    for name, rows in tables.items():
        write_atomic(folder / f"{name}.csv", rows.to_csv())
    write_atomic(folder / PAGE, page_html(page))
    pictures = {picture.name for picture in page.pictures}
    for pattern, written in (("*.csv", set(tables)), ("figures/*.svg", pictures), ("figures/*.png", pictures)):
        for file in folder.glob(pattern):
            if file.stem not in written:
                file.unlink()
    write_atomic(folder / RESULT, json.dumps(result, ensure_ascii=False, indent=1, allow_nan=False))
    return folder / PAGE


def _png(figure: Figure, unset: set[str]) -> bytes:
    """The figure; characters that no font has are added to ``unset``."""
    buffer = io.BytesIO()
    with style(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        figure.savefig(buffer, format="png", dpi=PNG_DPI)
    for warning in told:
        if glyph := re.match(r"Glyph (\d+) .* missing from font", str(warning.message)):
            unset.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return buffer.getvalue()
