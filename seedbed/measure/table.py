"""A table: plain rows, each a dataclass, that a person takes to CSV or pandas."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

RowT = TypeVar("RowT")


class Rows(list[RowT], Generic[RowT]):
    """A list of dataclasses of one type."""

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with a column a field. Raises ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame([flat(row) for row in self])

    def to_csv(self) -> str:
        """CSV with a heading; None is an empty cell, a list JSON. No rows: an empty text."""
        table = [flat(row) for row in self]
        columns = list(dict.fromkeys(column for row in table for column in row))
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in table)
        return out.getvalue() if columns else ""


def flat(row: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of a dataclass; those of a dataclass within it as `outer.inner`."""
    found: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if is_dataclass(value):
            found |= flat(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found


def _cell(value: Any) -> Any:
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, Sequence) and not isinstance(value, str) else value
    )
