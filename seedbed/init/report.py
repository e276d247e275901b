"""The receipt of an initialization: what was drawn, measured, and enough to draw it again."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from seedbed.errors import InputError
from seedbed.init.plan import Plan, PlanRow

FORMAT_VERSION = 2  # of receipts


@dataclass(frozen=True)
class ReceiptRow:
    """Target and measured standard deviation of what was drawn; `mean` is the measured mean."""

    name: str
    role: str
    shape: tuple[int, ...]
    distribution: str
    target_std: float
    std: float
    mean: float

    @property
    def off(self) -> float:
        """How far the measured std is from its target, as a share of it; 0 where nothing was drawn."""
        return self.std / self.target_std - 1 if self.target_std else 0.0


@dataclass(frozen=True)
class InitReport:
    """What an initialization did, a row for each of the plan's, and what it takes to do it again: plan and seed.

    Printed, layers with equal rows share a line, which shows the one that is farthest from its target.
    """

    seed: int
    plan: Plan
    rows: tuple[ReceiptRow, ...]

    def dump(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "seed": self.seed,
            "plan": self.plan.dump(),
            "rows": [asdict(row) for row in self.rows],
        }

    @classmethod
    def load(cls, path: str | Path) -> "InitReport":
        """Read a ``receipt.json``. Raises InputError where there is none that can be replayed."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
            if told["format_version"] not in (1, FORMAT_VERSION):  # 1 has fewer fields, all of which have defaults
                raise InputError(f"{path}: receipt format {told['format_version']}, this release reads 1 and 2")
            return TypeAdapter(cls).validate_python({key: told[key] for key in ("seed", "plan", "rows")})
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; name the receipt.json of a run") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: not the receipt of a draw; a run from other weights has none") from None

    def __str__(self) -> str:
        groups: dict[tuple[str, ...], list[tuple[PlanRow, ReceiptRow]]] = {}
        for planned, row in zip(self.plan.rows, self.rows, strict=True):
            key = (starred(row.name), row.role, "×".join(map(str, row.shape)), row.distribution)
            groups.setdefault((*key, starred(_note(planned))), []).append((planned, row))
        table = [("parameter", "count", "role", "shape", "law", "target std", "std", "off", "")]
        for (name, role, shape, law, note), members in groups.items():
            planned, worst = max(members, key=lambda member: (abs(member[1].off), member[1].std))
            if len(members) == 1:
                name, note = worst.name, _note(planned)
            target, off = (f"{worst.target_std:.4g}", f"{worst.off:+.2%}") if worst.target_std else ("", "")
            table.append((name, str(len(members)), role, shape, law, target, f"{worst.std:.4g}", off, note))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        copied = [f"copied from {file} (SHA-256 {digest[:12]})" for file, digest in self.plan.sources.items()]
        return "\n".join([f"{self.plan.title}, seed {self.seed}: {self._counts()}", *copied, *lines])

    def _counts(self) -> str:
        """How many numbers were drawn, set, kept and copied."""
        counts = {"drawn": 0, "constant": 0, "kept": 0, "copied": 0}
        for row in self.plan.rows:
            counts["drawn" if row.distribution.is_drawn else row.distribution.kind] += row.numel
        told = ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)
        return f"{self.plan.n_parameters:,} parameters: {told}"


def starred(text: str) -> str:
    """``*`` for the numbers of layers and experts in names."""
    return re.sub(r"\b\d+\.", "*.", text)


def _note(row: PlanRow) -> str:
    notes = []
    if row.joint is not None:
        notes.append(f"in one draw, {row.joint.name}")
    if row.zero_row is not None and row.distribution.is_drawn:
        notes.append(f"row {row.zero_row} zero")
    if row.tied:
        notes.append(f"also {', '.join(row.tied)}")
    return "; ".join(notes)
