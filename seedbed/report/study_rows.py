"""Rows of a study's report: its runs, and what they say together.

``arm`` names a combination of levels, ``others`` the levels of all axes but the compared one, ``size`` a size,
``share`` the share of the budget. Losses are held-out nats a token after the last step. ``mean``, ``std``, ``low``,
``high`` and ``n`` are over seeds: bounds are of the 95 % t interval, and None for a single seed.
"""

from dataclasses import dataclass, fields
from typing import Any

from seedbed.measure.table import Rows


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
    tokens: int  # behind its weights
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
    end_slope: float | None  # d loss / d ln tokens, over the last half of the tokens
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
    """``d difference / d ln x``: whether the difference shrinks or grows."""

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
class CurveRow:
    """Learning curve of a whole run at a token count."""

    arm: str
    size: str
    tokens: float
    mean: float
    low: float | None
    high: float | None
    n: int
    interpolated: bool


@dataclass(frozen=True)
class GradientRow:
    """Gradient norm before clipping in the steps up to an evaluation."""

    arm: str
    size: str
    tokens: float
    median: float  # over steps; mean over seeds
    largest: float  # of any step and seed
    n: int


@dataclass(frozen=True)
class TokensRow:
    """Tokens of an arm to the final loss of another, over that one's own."""

    others: str
    size: str
    share: float
    level: str  # who learns
    target: str  # whose final loss is to be reached
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    reason: str


@dataclass(frozen=True)
class GainRow:
    """Effective size: which size of the baseline has the same loss."""

    others: str
    level: str
    baseline: str
    share: float
    counted: str  # all parameters; without embeddings
    method: str
    parameters: float
    same_as: float | None
    gain: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    reason: str


@dataclass(frozen=True)
class FitRow:
    """``L = floor + scale (N / smallest N)^-exponent`` of one seed."""

    others: str
    level: str
    share: float
    counted: str
    seed: int
    floor: float
    exponent: float
    base_scale: float
    arm_scale: float
    rms: float


@dataclass(frozen=True)
class NoteRow:
    """What was left out of an effective size, or calls for caution."""

    others: str
    level: str
    share: float
    counted: str
    note: str


@dataclass(frozen=True)
class KnobRow:
    """Loss at a value of the axis whose optimum is looked for."""

    others: str  # levels of all other axes
    size: str
    share: float
    value: float
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class OptimumRow:
    others: str
    size: str
    width: int
    share: float
    at: float | None
    low: float | None
    high: float | None
    n: int
    points: str  # values that the fit was made to
    reason: str
    notes: str


@dataclass(frozen=True)
class MovementRow:
    """How far the optimum moves with width: by pairs, and by ``d optimum / d ln width`` over all."""

    others: str
    share: float
    what: str
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    n: int
    reason: str


@dataclass(frozen=True)
class LookRow:
    """A measure of the models before their first step or after their last."""

    arm: str
    size: str
    share: float
    measure: str
    part: str  # layer or norm; empty for the whole model
    when: str  # before, after
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class WeightsRow:
    """A measure of the weights of a component during training."""

    arm: str
    size: str
    tokens: float
    component: str
    measure: str
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class TokenGainRow:
    """Gain of a level over the baseline on tokens of a tenth of difficulty, or on all; over seeds."""

    others: str
    level: str
    baseline: str
    size: str
    share: float
    tenth: int  # 1: the easiest; 0: all tokens
    tokens: int  # a seed
    difficulty: float  # mean of both losses, nats
    gain: float  # baseline's loss less the level's, nats
    gain_low: float | None
    gain_high: float | None
    probability_gain: float  # (p - p_base) / (p + p_base)
    probability_low: float | None
    probability_high: float | None
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
    effective_sizes: Rows[GainRow]
    fits: Rows[FitRow]
    effective_notes: Rows[NoteRow]
    knob: Rows[KnobRow]
    optima: Rows[OptimumRow]
    movements: Rows[MovementRow]
    looks: Rows[LookRow]
    weights: Rows[WeightsRow]
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
