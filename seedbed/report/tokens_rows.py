"""What two models make of the same tokens, as analysis fills it in and terminal and page show it.

A is the baseline, B the model whose gain is asked. Losses, gains and difficulties are in nats.
"""

from dataclasses import dataclass

from seedbed.measure.table import Rows


@dataclass(frozen=True)
class Mean:
    """Over tokens or bytes, with a percentile bootstrap interval over documents; no interval of too few documents."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class GroupRow:
    """The gain on some of the tokens: all of them, those of a domain, a language, a bin of difficulty."""

    kind: str
    name: str
    documents: int
    tokens: int
    bytes: int  # of text that the tokens stand for
    lowest: float  # difficulty
    highest: float
    loss_a: float  # nats per token
    loss_b: float
    bits_per_byte_a: float | None  # None where the tokens stand for no byte
    bits_per_byte_b: float | None
    bits_per_byte_gain: Mean | None  # that of A minus that of B
    gain: Mean  # loss_a - loss_b, nats per token
    probability_gain: Mean  # (p_b - p_a) / (p_a + p_b)
    better: float  # share of tokens that are likelier under B
    worse: float
    little: float  # share whose probability gain is within +-LITTLE


@dataclass(frozen=True)
class DocumentRow:
    id: str
    domain: str
    lang: str
    tokens: int
    cut: int  # tokens that were not read
    loss_a: float
    loss_b: float
    gain: float
    probability_gain: float
    better: float


@dataclass(frozen=True)
class TokenRow:
    """All occurrences of one token of the vocabulary."""

    id: int
    token: str
    count: int
    documents: int
    loss_a: float
    loss_b: float
    gain: float  # mean, nats
    total: float  # summed gain, nats


@dataclass(frozen=True)
class HistogramRow:
    low: float
    high: float
    tokens: int  # in [low, high); in the outermost bars also all beyond them


@dataclass(frozen=True)
class TokenGains:
    a: str
    b: str
    tokenizer: str
    """SHA-256 of `tokenizer.json`."""
    vocabulary: int
    length: int
    """Tokens that are read of a document, at most."""
    cut_documents: int
    cut_tokens: int
    skipped: dict[str, int]
    """Records that were not read, by reason."""
    remarks: list[str]
    resamples: int
    seed: int
    overall: GroupRow
    loss_std_a: float
    """Over tokens, nats."""
    loss_std_b: float
    slope: float
    """Of the gain over difficulty, least squares over tokens: nats a nat."""
    bins: Rows[GroupRow]
    domains: Rows[GroupRow]
    languages: Rows[GroupRow]
    documents: Rows[DocumentRow]
    gaining: Rows[TokenRow]
    losing: Rows[TokenRow]
    gain_histogram: Rows[HistogramRow]
    probability_gain_histogram: Rows[HistogramRow]


@dataclass(frozen=True)
class ShownToken:
    """A token of a text that is shown; without losses and ranks where nothing predicts it."""

    id: int
    text: str
    """What it stands for; the bytes of a part of a character."""
    loss_a: float | None
    loss_b: float | None
    rank_a: int | None  # 1: the likeliest
    rank_b: int | None


@dataclass(frozen=True)
class ShownPiece:
    """Text that can be shown by itself: a token, or several that share a character."""

    text: str
    tokens: list[ShownToken]


@dataclass(frozen=True)
class ShownText:
    id: str
    domain: str
    lang: str
    pieces: list[ShownPiece]
    left_off: int
    """Tokens of the document that are not shown."""
    gain: float  # nats per token, of all of its tokens that were read
