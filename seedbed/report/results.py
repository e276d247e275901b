"""The folder of an analysis: the page, its tables as CSV, everything as JSON, each figure as SVG and PNG."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.files.atomic import write_atomic
from seedbed.measure.table import Rows
from seedbed.report.sections import Page, page_html
from seedbed.report.style import style

PAGE = "report.html"
RESULT = "result.json"
PNG_DPI = 200


def write_results(folder: Path, page: Page, tables: Mapping[str, Rows[Any]], result: Any) -> Path:
    """Write ``report.html``, ``NAME.csv`` of each table, ``figures/NAME.svg`` and ``.png``, and last ``result.json``,
    JSON values that hold everything; returns the page's path.
    """
    for picture in page.pictures:
        place = folder / "figures" / picture.name
        write_atomic(place.with_suffix(".svg"), str(picture.svg))
        buffer = io.BytesIO()
        with style():
            picture.figure.savefig(buffer, format="png", dpi=PNG_DPI)
        write_atomic(place.with_suffix(".png"), buffer.getvalue())
    for name, rows in tables.items():
        write_atomic(folder / f"{name}.csv", rows.to_csv())
    write_atomic(folder / PAGE, page_html(page))
    write_atomic(folder / RESULT, json.dumps(result, ensure_ascii=False, indent=1, allow_nan=False))
    return folder / PAGE
