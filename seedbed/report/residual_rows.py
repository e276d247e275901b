"""Rows of the residual analysis: the stream by layer, norms and their epsilons, and what was measured."""

from dataclasses import dataclass

from seedbed.measure.table import Rows

MEASURES = (
    "norm", "rms", "variance", "largest", "massive", "flow", "attn_ratio", "attn_cosine", "mlp_ratio", "mlp_cosine",
)  # fmt: skip


@dataclass(frozen=True)
class StreamRow:
    """The stream after a layer and what the layer added: means over tokens, and medians, which a few tokens with
    massive activations cannot move."""

    model: str
    step: int | None  # of a run's checkpoint
    layer: int  # from 0; -1 is the embedded input
    tokens: str  # first: those that begin a document; others
    count: int
    norm: float  # ||h||
    rms: float  # ||h|| / sqrt(d)
    variance: float  # over features
    largest: float  # max |h_i|
    massive: float  # max |h_i| / median |h_i|
    flow: float  # ||h - e|| / ||e||
    attn_ratio: float | None  # ||added|| / ||stream it is added to||; None: not measured, or the embedded input
    attn_cosine: float | None
    mlp_ratio: float | None
    mlp_cosine: float | None
    norm_median: float
    rms_median: float
    variance_median: float
    largest_median: float
    massive_median: float
    massive_most: float  # of any token
    flow_median: float
    attn_ratio_median: float | None
    mlp_ratio_median: float | None


@dataclass(frozen=True)
class NormRow:
    """How much of a norm's denominator is its epsilon, means over tokens."""

    model: str
    step: int | None
    norm: str
    layer: int | None  # None: outside of the layers
    reads: str  # stream; branch: what a branch is about to add; attn, mlp: something within one
    tokens: str
    count: int
    centred: bool
    eps: float
    second_moment: float
    masking: float
    masking_usual: float


@dataclass(frozen=True)
class Member:
    """A model, at one step, that was measured."""

    model: str
    step: int | None
    source: str  # path, or how the weights were made
    layers: int
    width: int
    documents: int
    tokens: int
    firsts: int  # of them begin a document
    cut: int  # tokens left off behind the length
    attn: str  # the module whose output is added, * for the layer's number
    mlp: str
    weights_sha256: str


@dataclass(frozen=True)
class ResidualResult:
    members: Rows[Member]
    stream: Rows[StreamRow]
    norms: Rows[NormRow]
    data: str
    length: int
    problems: list[str]

    def newest(self) -> list[Member]:
        """Of each model the last step."""
        return list({member.model: member for member in self.members}.values())

    def steps(self, model: str) -> list[int]:
        """Of a run, those that were measured."""
        return sorted({one.step for one in self.members if one.model == model and one.step is not None})

    def measured_over_steps(self) -> list[str]:
        """The runs of which there are several."""
        return [member.model for member in self.newest() if len(self.steps(member.model)) > 1]
