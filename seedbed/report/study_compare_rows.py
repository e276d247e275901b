"""Rows of a comparison of two studies, A and B: cells that both have, and what they were run with."""

from dataclasses import dataclass

from seedbed.measure.table import Rows

SAME = "the same runs"
"""How the method of a cell begins whose common seeds are the same runs in both studies."""


@dataclass(frozen=True)
class SharedRow:
    """An arm, size and share that both studies have. Bounds are of 95 % t intervals."""

    arm: str
    arm_b: str  # as B calls it
    size: str
    share: float
    tokens_a: int
    tokens_b: int
    mean_a: float
    std_a: float | None
    n_a: int
    mean_b: float
    std_b: float | None
    n_b: int
    difference: float  # B less A; of paired runs over their common seeds
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    family: int  # so many comparisons were corrected for: those of this share that have a p
    method: str

    @property
    def same(self) -> bool:
        return self.method.startswith(SAME)


@dataclass(frozen=True)
class SettingRow:
    """A setting in which cells that both studies have are not alike."""

    path: str
    arm: str  # of one cell, or all
    size: str
    value_a: str
    value_b: str


@dataclass(frozen=True)
class StudiesCompared:
    name_a: str
    name_b: str
    question_a: str
    question_b: str
    seeds_a: list[int]
    seeds_b: list[int]
    unit: str  # nats per token; bits per byte where the data differ
    same_data: bool
    data_a: dict[str, str]
    data_b: dict[str, str]
    versions_a: dict[str, str]
    versions_b: dict[str, str]
    shared: Rows[SharedRow]
    settings: Rows[SettingRow]
    only_a: list[str]
    only_b: list[str]

    @property
    def smoke(self) -> bool:
        """There is something to compare, and no cell of it has two seeds on both sides: nothing says how far chance
        reaches."""
        compared = [row for row in self.shared if not row.same]
        return bool(compared) and all(min(row.n_a, row.n_b) < 2 for row in compared)
