"""Rows of a study's report: its runs, and what they say together.

``arm`` names a combination of levels, ``others`` the levels of all axes but the compared one, ``size`` a size,
``share`` the share of the budget. Losses are held-out nats per token after the last step. ``mean``, ``std``, ``low``,
``high`` and ``n`` are over seeds: bounds are of the 95 % t interval, and None for a single seed.
"""

from dataclasses import dataclass, fields
from typing import Any

from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import (
    CurveRow,
    FitRow,
    GainRow,
    GradientRow,
    KnobRow,
    LayerRow,
    LookRow,
    MovementRow,
    NoteRow,
    OptimumRow,
    ScalingRow,
    ScoreRow,
    TokenGainRow,
    TokensRow,
    WeightsRow,
)


@dataclass(frozen=True)
class RunRow:
    """A run; of one that is missing the reason is why."""

    key: str  # the name of its folder
    stage: str  # tune or compare
    arm: str
    size: str
    share: float
    seed: int
    tuned: str  # path=value, ...
    status: str  # finished, diverged, failed, missing
    reason: str
    nats_per_token: float | None  # None unless finished
    bits_per_byte: float | None
    steps: int
    tokens: int  # behind its weights: steps times batch times length, as the plan counts them
    own_tokens: int  # without those of the run that it branches off
    flops: float  # made by this run, not by the one that it branches off
    train_s: float
    wall_s: float
    peak_mb: float
    threads: int
    branched: str | None  # the key of the run that it went on from


@dataclass(frozen=True)
class CellRow:
    """An arm at a size: what it chose and how far its runs are."""

    arm: str
    size: str
    width: int
    parameters: int
    non_embedding: int
    tuned: str  # path=value, ...; empty where nothing is chosen
    problem: str  # why it has no result; empty where it has, or is not so far
    tune_finished: int
    tune_diverged: int
    tune_failed: int
    tune_missing: int  # known by now; a walk decides the next ones by those that are done
    finished: int
    diverged: int
    failed: int
    missing: int


@dataclass(frozen=True)
class TuneRow:
    """A tuning run, once for each path that is tuned."""

    arm: str
    size: str
    path: str
    value: float
    others: str  # the other tuned values of this run
    status: str
    nats_per_token: float | None
    chosen: bool
    on_line: bool  # the other values are those of the best run so far


@dataclass(frozen=True)
class LossRow:
    """Final losses of an arm, a size and a share."""

    arm: str
    size: str
    share: float
    tokens: int
    parameters: int
    tokens_per_parameter: float
    tokens_per_non_embedding: float
    flops: float  # of one run from its first step
    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int
    seeds: int  # planned
    bits_per_byte: float | None
    bits_low: float | None
    bits_high: float | None
    end_slope: float | None  # change with a doubling of tokens: from the next smaller share, or along the last half
    slope_low: float | None
    slope_high: float | None


@dataclass(frozen=True)
class DifferenceRow:
    """Loss of a level less that of the baseline, paired by seed."""

    others: str
    level: str
    baseline: str
    size: str
    share: float
    parameters: int
    non_embedding: int
    tokens_per_parameter: float
    tokens_per_non_embedding: float
    mean: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    family: int  # so many comparisons were corrected for: those of this share that have a p
    n: int
    seeds: int  # planned


@dataclass(frozen=True)
class SlopeRow:
    """Change of the difference with a doubling: whether it shrinks or grows."""

    others: str
    level: str
    baseline: str
    over: str  # tokens, parameters, non-embedding parameters
    at: str  # the size, or the share, that is kept
    points: int
    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int


@dataclass(frozen=True)
class ConfigRow:
    """A field of the configuration in which cells or shares differ."""

    arm: str
    size: str
    share: float
    path: str
    value: str


@dataclass(frozen=True)
class StudyResult:
    name: str
    question: str
    source: str
    notes: dict[str, str]
    axis: str  # the compared one
    baseline: str
    optimum: str  # the numeric axis whose optimum is looked for, or empty
    observed: list[str]
    arms: list[str]
    sizes: list[str]
    seeds: list[int]
    tuning_seed: int | None
    tuned_paths: list[str]
    shares: list[float]
    runs: Rows[RunRow]
    cells: Rows[CellRow]
    tuning: Rows[TuneRow]
    losses: Rows[LossRow]
    differences: Rows[DifferenceRow]
    slopes: Rows[SlopeRow]
    curves: Rows[CurveRow]
    gradients: Rows[GradientRow]
    tokens_to_loss: Rows[TokensRow]
    scaling: Rows[ScalingRow]
    effective_sizes: Rows[GainRow]
    fits: Rows[FitRow]
    effective_notes: Rows[NoteRow]
    knob: Rows[KnobRow]
    optima: Rows[OptimumRow]
    movements: Rows[MovementRow]
    looks: Rows[LookRow]
    weights: Rows[WeightsRow]
    layers: Rows[LayerRow]
    scores: Rows[ScoreRow]
    evaluated: list[str]  # how scores were made, and what was left out
    token_gains: Rows[TokenGainRow]
    configs: Rows[ConfigRow]
    shared: dict[str, str]  # fields that all runs have alike
    specification: dict[str, Any]
    data: dict[str, str]  # store: fingerprint of what is trained on
    versions: dict[str, str]  # of all runs; where they differ each with its count
    threads: str
    problems: list[str]  # what could not be computed, and why

    @property
    def smoke(self) -> bool:
        """One seed: nothing says how far chance reaches."""
        return len(self.seeds) == 1


def study_tables(result: StudyResult) -> dict[str, Rows[Any]]:
    """The tables by name, those that have rows: files NAME.csv of a report."""
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: rows for name, rows in values.items() if isinstance(rows, Rows) and rows}
