"""What an analysis of attention found, as plain rows. Weights are shares of 1, entropies nats."""

from dataclasses import dataclass

from seedbed.measure.table import Rows

THRESHOLD = 0.3
"""A head whose sink score exceeds it is a sink head (Gu et al. 2024)."""


@dataclass(frozen=True)
class HeadRow:
    checkpoint: str
    layer: int
    head: int
    sink: float
    """Mean weight on the first token of the document, over queries."""
    uniform_sink: float
    """The same of attention that is even over the tokens that the layer lets a query see."""
    entropy: float
    entropy_share: float
    """Of the entropy of even attention."""
    elsewhere: float
    """Mean weight on no token: that of a learned sink."""


@dataclass(frozen=True)
class LayerRow:
    """Means over the heads of a layer."""

    checkpoint: str
    layer: int
    heads: int
    sink: float
    sink_low: float | None
    """95 % interval over documents; None for a single one."""
    sink_high: float | None
    above: float
    """Share of the heads that are sink heads."""
    uniform_sink: float
    entropy: float
    uniform_entropy: float
    entropy_share: float
    elsewhere: float


@dataclass(frozen=True)
class PlaceRow:
    """Mean weight on one of the first tokens of the document, over heads and the queries that see all of these."""

    checkpoint: str
    layer: int
    place: int
    """0 is the first token."""
    weight: float
    uniform: float


@dataclass(frozen=True)
class ModelRow:
    """Means over the measured heads of all layers, each of equal weight."""

    checkpoint: str
    layers: int
    measured: int
    """Layers with attention weights."""
    heads: int
    sink: float
    sink_low: float | None
    sink_high: float | None
    above: float
    uniform_sink: float
    entropy: float
    entropy_share: float
    documents: int
    full: int
    """Documents that fill the length."""
    tokens: int
    cut: int
    """Tokens left off behind them."""
    queries: int
    sha256: str
    """Of its weights, configuration and tokenizer."""
    tokens_sha256: str
    """Of the tokens that it read."""


@dataclass(frozen=True)
class DifferenceRow:
    """Sink score of a checkpoint minus that of the first, mean over heads, on the same tokens."""

    checkpoint: str
    against: str
    sink: float
    sink_low: float | None
    """95 % interval over documents, paired."""
    sink_high: float | None


@dataclass(frozen=True)
class UnmeasuredRow:
    checkpoint: str
    layer: int
    reason: str


@dataclass(frozen=True)
class Attention:
    length: int
    """T: documents are cut to so many tokens."""
    models: Rows[ModelRow]
    layers: Rows[LayerRow]
    heads: Rows[HeadRow]
    places: Rows[PlaceRow]
    differences: Rows[DifferenceRow]
    unmeasured: Rows[UnmeasuredRow]
    skipped: dict[str, dict[str, int]]
    """Of each checkpoint: records that were not read, by reason."""
