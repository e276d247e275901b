"""Rows of what a study says beyond its last losses: curves, sizes, optima, and looks into its models.

Fields are as in study_rows.
"""

from dataclasses import dataclass

DOUBLING = "a doubling"
"""What a MovementRow of all widths says that it is of."""


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
    by: str  # ends: of runs of the shares of the budget; curves: of the whole run
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
    size: str
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
    trend_p: float | None  # of the gap going with size as the fit's single ratio does
    p_holm: float | None  # over the levels (fit) or levels and sizes (interpolation) of a share and a way to count


@dataclass(frozen=True)
class ScalingRow:
    """Losses of a level and of the baseline at a size, over the seeds that both have: what an effective size rests
    on."""

    others: str
    level: str
    baseline: str
    size: str
    share: float
    counted: str
    parameters: float  # the baseline's
    base_mean: float
    base_low: float | None
    base_high: float | None
    mean: float
    low: float | None
    high: float | None
    n: int


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
    rms: float  # of what the fit leaves, over sizes and arms, in nats


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
    tokens_per_parameter: float
    at: float | None
    low: float | None
    high: float | None
    n: int
    points: str  # values that the fit was made to
    reason: str
    notes: str


@dataclass(frozen=True)
class MovementRow:
    """How far the optimum moves with width: by pairs, and with a doubling over all."""

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
class LayerRow:
    """A measure of the weights of a component at one layer, before the first step or after the last."""

    arm: str
    size: str
    component: str
    layer: int
    depth: float  # layer / (layers - 1)
    measure: str
    when: str  # before, after
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class ScoreRow:
    """A score of the models after their last step, over seeds, and what it has more than the baseline's."""

    arm: str
    size: str
    task: str
    subset: str
    metric: str
    unit: str
    better: str  # higher, lower
    items: int
    mean: float
    low: float | None
    high: float | None
    n: int
    more: float | None  # pairs of one seed; None of the baseline itself
    more_low: float | None
    more_high: float | None


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
