"""What an analysis of instruction-following difficulty finds: plain rows, for pages, tables and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

from seedbed.measure.ifd import Correlation, Summary
from seedbed.measure.table import Rows

SHORT = 20
"""Tokens of a response below which it is reported apart (S1)."""


@dataclass(frozen=True)
class ResponseLosses:
    """Of one model on one response."""

    conditional: float  # nats per token, with the instruction before it
    unconditional: float  # nats per token, without
    ifd: float


@dataclass(frozen=True)
class IfdRow:
    id: str
    where: str
    instruction_tokens: int  # all that stand before the response
    response_tokens: int  # those that both losses are means over
    checkpoint: ResponseLosses
    base: ResponseLosses | None = None
    ratio: float | None = None  # conditional loss of the checkpoint over that of the base
    unconditional_ratio: float | None = None

    @property
    def short(self) -> bool:
        return self.response_tokens < SHORT


@dataclass(frozen=True)
class SummaryRow:
    responses: str
    """`all`, `short` (fewer than 20 tokens) or `longer`."""
    measure: str
    """A field of IfdRow: `checkpoint.ifd`."""
    summary: Summary


@dataclass(frozen=True)
class CorrelationRow:
    responses: str
    x: str
    y: str
    correlation: Correlation


@dataclass(frozen=True)
class Sample:
    place: str
    """Where its IFD stands among all."""
    row: IfdRow
    instruction: str
    response: str


@dataclass(frozen=True)
class IfdResult:
    checkpoint: str
    base: str | None
    template: str
    """`tokenizer`, `chatml`, a file, or `none`: plain text."""
    begins: str
    """The begin of text, after which a response alone is read; "": there is none."""
    begin_opens_turns: bool
    """Whether the checkpoint's chat template spells it, as SmolLM2's does: a response alone is read without it. Then,
    as where there is none, no loss counts the first token of a response."""
    base_has_template: bool
    """Whether the tokenizer of the base has a chat template of its own."""
    rows: Rows[IfdRow]
    summaries: Rows[SummaryRow]
    correlations: Rows[CorrelationRow]
    samples: list[Sample]
    skipped: dict[str, int]
    """Records that were read and left out, by reason."""
    asked: int | None
    """Records that were asked for; None: all."""


def measures(two: bool) -> list[str]:
    """What is summarized, for one model or two."""
    own = [f"checkpoint.{name}" for name in ("ifd", "conditional", "unconditional")]
    others = [f"base.{name}" for name in ("ifd", "conditional", "unconditional")]
    return [*others, *own, "ratio", "unconditional_ratio"] if two else own


def values_of(rows: Sequence[IfdRow], measure: str) -> list[float]:
    """The field ``measure`` of each row; "base.ifd" is a field of its field."""
    outer, _, inner = measure.partition(".")
    values = [getattr(row, outer) for row in rows]
    return [getattr(value, inner) for value in values] if inner else values
