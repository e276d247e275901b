"""What a preflight finds, as analysis fills it in and terminal and page show it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seedbed.init import Plan
from seedbed.measure.budget import BudgetRow
from seedbed.measure.gradients import GradientRow
from seedbed.measure.losses import LogitStats
from seedbed.measure.precision import LayerError
from seedbed.measure.residual import ResidualReport
from seedbed.measure.sink import SinkReport


@dataclass(frozen=True)
class LostRow:
    """Share of the first update of a role that rounding would undo if its weights were kept in bf16."""

    role: str
    share: float  # NaN where nothing moved, or not to finite numbers


@dataclass(frozen=True)
class FirstStep:
    """Loss and gradients of a batch, and one optimizer step on it at the peak rate."""

    tokens: int  # of the batch, padding included
    loss: float  # nats a supervised token
    logits: LogitStats
    gradients: list[GradientRow]  # before clipping
    lost: list[LostRow]
    pass_seconds: float  # forward and backward of the batch
    update_seconds: float  # clipping and the optimizers


@dataclass(frozen=True)
class Scaling:
    """How a branch changes with width under a law: ||branch||/||e|| ~ d^exponent (science section 2)."""

    maps: int  # k, matrices in series
    exponent: float
    balancing: float  # the gamma of all its maps that would make the exponent 0


@dataclass(frozen=True)
class SlopeRow:
    """How a ratio of norms grows with the width d: as d^slope."""

    branch: str  # attention, mlp: ||branch(norm(e))|| / ||e||, each by itself; flow: ||h_L - e|| / ||e||
    widths: tuple[int, ...]
    ratios: tuple[float, ...]  # at each width, geometric mean over seeds, layers and tokens
    slope: float
    stderr: float
    expected: float | None  # science section 2; None where the law is no power of the width
    tokens: int  # measured on


@dataclass(frozen=True)
class GammaRow:
    """How the matrices of a role were drawn: with std proportional to d_in^-gamma."""

    role: str
    widths: tuple[int, ...]  # of the model
    stds: tuple[float, ...]  # at each width, geometric mean over seeds and matrices
    gamma: float
    stderr: float


# (choice) Measured over widths 64-512: slopes of mup stay within 0.25 where a step changes activations by less than
# their own size, a wrong exponent of the rate moves those of its weights by 0.5 or more, and normal reaches 2.
FLAT_SLOPE = 0.3


@dataclass(frozen=True)
class ChangeRow:
    """How far an activation is from where it was before training, over widths d: as d^slope."""

    activation: str
    step: int  # after this many
    changes: tuple[float, ...]  # at each width: RMS over tokens and features, geometric mean over seeds
    slope: float | None  # None where it has not moved, as behind a zero head after one step


@dataclass(frozen=True)
class CoordCheck:
    """The coordinate check of an initialization: does training move activations by the same amount at every width?"""

    title: str  # of the plan
    optimizer: str
    lr: float
    data: str  # what it was trained on
    tokens: int  # of the batch
    seeds: int
    widths: tuple[int, ...]
    rows: tuple[ChangeRow, ...]  # by activation, in the order of the forward pass, then by step

    @property
    def steepest(self) -> ChangeRow:
        """The row whose slope is farthest from 0."""
        return max((row for row in self.rows if row.slope is not None), key=lambda row: abs(row.slope or 0))

    @property
    def flat(self) -> bool:
        """Whether no slope is farther from 0 than :data:`FLAT_SLOPE`."""
        return abs(self.steepest.slope or 0) <= FLAT_SLOPE


@dataclass(frozen=True)
class Arm:
    """One initialization, measured on real tokens before training and after its first step."""

    title: str
    plan: Plan
    scaling: dict[
        str, Scaling
    ]  # of the branches "attention" and "mlp"; of none where a law does not say (copied weights)
    residual: ResidualReport
    budget: list[BudgetRow]  # empty where norms stand behind the branches
    precision: list[LayerError]
    precision_tokens: int
    sink: SinkReport
    first: FirstStep
    slopes: list[SlopeRow] = field(default_factory=list)  # empty where no widths were asked for
    gammas: list[GammaRow] = field(default_factory=list)  # of the roles that are drawn; empty with `slopes`
    coordinates: CoordCheck | None = None  # None where no check was asked for


@dataclass(frozen=True)
class Verdict:
    """One sentence about an arm, the numbers that it rests on, and how much it matters."""

    level: Literal["good", "note", "warning"]
    text: str
    numbers: Mapping[str, float | int | str | None]


@dataclass(frozen=True)
class Resources:
    """What the run will take; memory in bytes, by part."""

    memory: dict[str, int]
    step_seconds: float  # from one timed step on this machine
    timed_tokens: int  # that it was timed on
    timed_in: str  # its precision, and the device
    steps: int
    tokens: int  # of the whole run

    @property
    def seconds(self) -> float:
        return self.step_seconds * self.steps
