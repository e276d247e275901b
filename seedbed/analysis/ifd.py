"""How much does an instruction help a model to predict its response, and what did training change about it?

Instruction-following difficulty, IFD = L_cond / L_uncond, and the loss ratio of two models (S1 appendix A).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from seedbed.analysis.exchanges import Exchange, Exchanges
from seedbed.data.batching import batches, padded
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel
from seedbed.measure.ifd import correlation, summary, tail_means
from seedbed.measure.table import Rows
from seedbed.report.ifd_rows import (
    CorrelationRow,
    IfdResult,
    IfdRow,
    ResponseLosses,
    Sample,
    SummaryRow,
    measures,
    values_of,
)

TOKENS = 2048
"""Of a batch, padding included; one longer row is a batch of its own."""


class _Line(NamedTuple):
    """What a model reads in one row, and how many of its last tokens count."""

    place: int
    """Exchange k has lines 2k, with the instruction, and 2k + 1, without."""
    where: str
    """`file:line` of the record."""
    ids: list[int]
    counted: int


def analyze(
    checkpoint: LanguageModel,
    base: LanguageModel | None,
    exchanges: Exchanges,
    parts: Parts,
    tell: Callable[[str], None],
    tokens: int = TOKENS,
) -> IfdResult:
    """IFD of each exchange, which ``checkpoint``'s tokenizer has encoded, under one model or two.

    Raises InputError where the base reads other tokens, and where a loss is no number.
    """
    found = exchanges.found
    if base is not None:
        _check_tokens(checkpoint, base, found)
    begins = checkpoint.tokenizer.bos_token or ""
    opens = begins != "" and begins in (checkpoint.tokenizer.chat_template or "")
    start = None if opens else checkpoint.tokenizer.bos_id
    lines = _lines(found, start)
    measured = [
        _losses(model, role, lines, parts, tell, tokens)
        for role, model in (("checkpoint", checkpoint), ("base", base))
        if model is not None
    ]
    same_name = base is not None and base.name == checkpoint.name
    rows = Rows(_row(exchange, int(start is None), *losses) for exchange, *losses in zip(found, *measured, strict=True))
    return IfdResult(
        checkpoint=checkpoint.name + (" (checkpoint)" if same_name else ""),
        base=None if base is None else base.name + (" (base)" if same_name else ""),
        template=exchanges.template,
        begins=begins,
        begin_opens_turns=opens,
        base_has_template=base is not None and base.tokenizer.chat_template is not None,
        rows=rows,
        summaries=Rows(
            SummaryRow(name, measure, summary(values_of(chosen, measure)))
            for name, chosen in _groups(rows)
            for measure in measures(base is not None)
        ),
        correlations=Rows(
            CorrelationRow(name, x, y, correlation(values_of(chosen, x), values_of(chosen, y)))
            for name, chosen in _groups(rows)
            for x, y in _pairs(base is not None)
        ),
        samples=_samples(rows, found),
        skipped=dict(exchanges.skipped),
        asked=exchanges.asked,
    )


def _pairs(two: bool) -> list[tuple[str, str]]:
    looked_at = [name for name in measures(two) if name != "unconditional_ratio"]
    pairs = [(length, of) for of in looked_at for length in ("instruction_tokens", "response_tokens")]
    pairs += [("instruction_tokens", "response_tokens")]
    return (
        [*pairs, ("base.ifd", "checkpoint.ifd"), ("base.ifd", "ratio"), ("checkpoint.ifd", "ratio")] if two else pairs
    )


def _groups(rows: Sequence[IfdRow]) -> list[tuple[str, list[IfdRow]]]:
    longer, short = ([row for row in rows if row.short == wanted] for wanted in (False, True))
    return [("all", list(rows)), ("longer", longer), ("short", short)]


def _check_tokens(checkpoint: LanguageModel, base: LanguageModel, found: Sequence[Exchange]) -> None:
    own, other = checkpoint.tokenizer, base.tokenizer
    if own.hash == other.hash:
        return
    used = {i for exchange in found for i in (*exchange.prompt_ids, *exchange.response_ids)}
    texts = [text for exchange in found for text in (exchange.instruction, exchange.response)]
    control = [token for token, i in own.special_tokens.items() if i in used and other.token_id(token) != i]
    if control or own.encode_batch(texts) != other.encode_batch(texts):
        what = f"it lacks {control[0]}" if control else "the same text has other ids"
        raise InputError(
            f"{base.name}: reads other tokens than {checkpoint.name} ({what}); losses a token compare under one "
            "tokenizer alone, so give two models that share it"
        )


def _lines(found: Sequence[Exchange], start: int | None) -> list[_Line]:
    """Each response with its instruction and without: the same ids. Alone it stands after ``start``; where that is
    None, as after a token behind which a role is named, its first token is read but counts in neither.
    """
    lines = []
    for place, exchange in enumerate(found):
        alone = exchange.response_ids if start is None else [start, *exchange.response_ids]
        counted = len(alone) - 1
        lines.append(_Line(2 * place, exchange.where, exchange.prompt_ids + exchange.response_ids, counted))
        lines.append(_Line(2 * place + 1, exchange.where, alone, counted))
    return lines


def _losses(
    model: LanguageModel, role: str, lines: Sequence[_Line], parts: Parts, tell: Callable[[str], None], tokens: int
) -> list[ResponseLosses]:
    """Of each pair of lines."""
    groups = list(batches(lines, tokens))
    means = [0.0] * len(lines)
    for number, group in enumerate(groups, start=1):
        tell(f"{model.name}: batch {number:,} of {len(groups):,}")
        found = parts.get(f"{role} {number}", lambda group=group: _means(model, group))
        for line, mean in zip(group, found, strict=True):
            means[line.place] = mean
    return [ResponseLosses(*pair, pair[0] / pair[1]) for pair in zip(means[::2], means[1::2], strict=True)]


def _means(model: LanguageModel, group: Sequence[_Line]) -> list[float]:
    rows = padded(group, model.tokenizer.eos_id)
    ids, doc_ids = (rows.ids.to(model.device), rows.doc_ids.to(model.device))
    counts = torch.tensor([line.counted for line in group], device=model.device)  # [B]
    means = tail_means(model.losses(ids, doc_ids), doc_ids, counts)  # [B]
    good = means.isfinite() & (means > 0)
    if not good.all():
        line = group[int(good.int().argmin())]
        raise InputError(
            f"{model.name}: its loss on the response of {line.where} is no positive number; look for broken weights"
        )
    return means.tolist()


def _row(exchange: Exchange, uncounted: int, checkpoint: ResponseLosses, base: ResponseLosses | None = None) -> IfdRow:
    lengths = len(exchange.prompt_ids), len(exchange.response_ids) - uncounted
    if base is None:
        return IfdRow(exchange.id, exchange.where, *lengths, checkpoint)
    ratio = checkpoint.conditional / base.conditional
    return IfdRow(
        exchange.id, exchange.where, *lengths, checkpoint, base, ratio, checkpoint.unconditional / base.unconditional
    )


def _samples(rows: Sequence[IfdRow], found: Sequence[Exchange]) -> list[Sample]:
    """Records at the ends, the quartiles and the middle of the checkpoint's IFD, and the middle one above 1."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].checkpoint.ifd)
    above = [i for i in order if rows[i].checkpoint.ifd > 1]
    last = len(order) - 1
    places = [
        ("lowest", order[0]),
        ("first quartile", order[last // 4]),
        ("median", order[last // 2]),
        ("third quartile", order[3 * last // 4]),
        *([("median of those above 1", above[len(above) // 2])] if above else []),
        ("highest", order[last]),
    ]
    return [Sample(place, rows[i], found[i].instruction, found[i].response) for place, i in places]
