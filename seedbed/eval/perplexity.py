"""How well does a model predict text? Bits per byte, nats per token and perplexity, by domain and language.

Each document is read by itself, from its beginning as the tokenizer begins a text; the end of a document is not
predicted. What is longer than a window of ``length`` tokens is read in one of two ways:

- document-wise: its first ``length`` tokens; what is left off is counted.
- strided: in windows that begin ``stride`` tokens apart. Each token is predicted once, in the first window that has it,
  after at least ``length - stride`` others; a later window begins with text, without a begin of text.

Sums are over tokens in float64: a long document counts more than a short one, and batches and padding change nothing.
Bytes are those of the raw UTF-8 text that is predicted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seedbed.data.texts import Text, Texts
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.eval.likelihood import BATCH_TOKENS, Line, summed_losses
from seedbed.eval.scores import ALL, Items, Scored, scored, unique
from seedbed.files.parts import Parts
from seedbed.hub.causal import vocabulary_of
from seedbed.hub.models import LanguageModel
from seedbed.measure.losses import bits_per_byte

TASK = "text"
BITS, NATS, PERPLEXITY = "bits per byte", "nats per token", "perplexity"
PER_TOKEN = (NATS, PERPLEXITY)
"""Metrics that compare under one tokenizer alone."""


@dataclass(frozen=True)
class Reading:
    """What a model read of the texts, and what was left out."""

    model: str
    tokenizer: str
    """SHA-256 of `tokenizer.json`."""
    length: int
    """Tokens of a window."""
    stride: int | None
    """None: document-wise."""
    documents: int
    tokens: int
    """Predicted."""
    bytes: int
    windows: int
    cut_documents: int
    cut_tokens: int
    """Left off behind the first window."""
    skipped: dict[str, int]
    """Records without text to predict, by reason."""
    remarks: list[str]


def check_stride(stride: int | None, length: int) -> None:
    """Raise InputError unless each window begins with a token that the one before has predicted."""
    if stride is not None and not 1 <= stride < length:
        raise InputError(
            f"--stride {stride}: give 1 to {length - 1}, less than the window's {length} tokens (--length)"
        )


def perplexity(
    model: LanguageModel,
    texts: Texts,
    length: int,
    stride: int | None,
    parts: Parts,
    tell: Callable[[str], None],
    name: str = TASK,
    batch_tokens: int = BATCH_TOKENS,
) -> tuple[list[Scored], Reading]:
    """Scores of ``texts``, which the model's tokenizer encoded, uncut where ``stride`` is given: of all documents, and
    of each domain and language where there are several. Items are documents.

    Each batch is a part, called after ``name``. Raises InputError where a loss is not finite, or no document stands for
    a byte.
    """
    check_stride(stride, length)
    spans = [windows(len(text.ids), length, stride) for text in texts.texts]
    ranges = [(text, span) for text, found in zip(texts.texts, spans, strict=True) for span in found]
    lines = [
        Line(place, text.id, text.ids[begin:end], counted) for place, (text, (begin, end, counted)) in enumerate(ranges)
    ]
    sums = iter(summed_losses(model, lines, parts, tell, name, batch_tokens))
    nats = np.array([sum(next(sums) for _ in found) for found in spans])  # [D]
    tokens = np.array([sum(counted for *_, counted in found) for found in spans])
    lengths = model.tokenizer.token_bytes()
    ends = [found[-1][1] for found in spans]
    n_bytes = np.array(
        [_bytes(text, end, model.tokenizer, lengths) for text, end in zip(texts.texts, ends, strict=True)]
    )
    kept = n_bytes > 0
    if not kept.any():
        raise InputError(f"{model.name}: no document has a predicted token that stands for a byte; give more text")
    ids = unique([text.id for text in texts.texts])
    groups = [(ALL, kept)]
    for kind, names in (
        ("domain", [text.domain or "(none)" for text in texts.texts]),
        ("language", [text.lang or "(none)" for text in texts.texts]),
    ):
        found = sorted({name for name, wanted in zip(names, kept, strict=True) if wanted})
        groups += [(f"{kind}: {one}", kept & (np.array(names) == one)) for one in found if len(found) > 1]
    skipped = dict(texts.skipped)
    if not kept.all():
        skipped["predicted tokens that stand for no byte"] = int((~kept).sum())
    left_off = [text.cut + len(text.ids) - end for text, end in zip(texts.texts, ends, strict=True)]
    cut = [n for n, wanted in zip(left_off, kept, strict=True) if wanted and n]
    reading = Reading(
        model=model.name,
        tokenizer=model.tokenizer.hash,
        length=length,
        stride=stride,
        documents=int(kept.sum()),
        tokens=int(tokens[kept].sum()),
        bytes=int(n_bytes[kept].sum()),
        windows=len(lines),
        cut_documents=len(cut),
        cut_tokens=sum(cut),
        skipped=skipped,
        remarks=_remarks(model),
    )
    return [one for group in groups for one in _scores(model.name, *group, ids, nats, tokens, n_bytes)], reading


def windows(n: int, length: int, stride: int | None) -> list[tuple[int, int, int]]:
    """(begin, end, how many of its last tokens are predicted) of each window over a document of ``n`` tokens.

    All tokens but the first are predicted once. With ``stride`` this is the sliding window of Transformers' guide to
    the perplexity of models of fixed length; without it, the first ``length`` tokens alone.
    """
    end = min(n, length)
    found = [(0, end, end - 1)]
    while stride is not None and end < n:
        begin = len(found) * stride
        found.append((begin, min(begin + length, n), min(begin + length, n) - end))
        end = found[-1][1]
    return found


def _bytes(text: Text, end: int, tokenizer: Tokenizer, lengths: np.ndarray) -> int:
    """Raw UTF-8 bytes of the text that is predicted: all of it, or what the tokens up to ``end`` stand for."""
    if tokenizer.start and not text.cut and end == len(text.ids):
        return len(text.text.encode("utf-8"))
    return int(lengths[text.ids[1:end]].sum(dtype=np.int64))


def _scores(
    model: str, subset: str, wanted: np.ndarray, ids: list[str], nats: np.ndarray, tokens: np.ndarray, bytes: np.ndarray
) -> list[Scored]:
    """The three metrics of the ``wanted`` [D] documents."""
    names = [one for one, chosen in zip(ids, wanted, strict=True) if chosen]
    sums, counts, sizes = nats[wanted], tokens[wanted], bytes[wanted]
    bits = [bits_per_byte(one, int(size)) for one, size in zip(sums, sizes, strict=True)]
    means, weights = (sums / counts).tolist(), counts.astype(float).tolist()
    of_bits = Items(TASK, subset, BITS, names, bits, sizes.astype(float).tolist())
    return [
        scored(model, of_bits, "bits/byte", "lower"),
        scored(model, Items(TASK, subset, NATS, names, means, weights), "nats/token", "lower"),
        scored(model, Items(TASK, subset, PERPLEXITY, names, means, weights, scale="exp"), "", "lower"),
    ]


def _remarks(model: LanguageModel) -> list[str]:
    """What stands between the numbers and their plain reading."""
    found = []
    if not model.tokenizer.start:
        found.append(f"{model.name} has no begin of text: the first token of each document is read, not predicted.")
    if not model.tokenizer.lossless:
        found.append(
            f"{model.name}: text does not survive its tokenizer; bytes of documents that are cut are approximate."
        )
    if more := vocabulary_of(model.module) - model.tokenizer.vocab_size:
        found.append(
            f"{model.name} has {more:,} outputs beyond its vocabulary; what probability they take is missing from its "
            "tokens."
        )
    return found


def told(reading: Reading) -> list[str]:
    """How the texts were read and what was left out, in sentences."""
    if reading.stride is None:
        way = f"Document-wise: of each document its first {reading.length:,} tokens."
    else:
        way = (
            f"Strided: windows of {reading.length:,} tokens that begin {reading.stride:,} tokens apart; each token is "
            f"predicted once, after at least {reading.length - reading.stride:,} others where its document has so many."
        )
    read = (
        f"{reading.documents:,} documents, {reading.tokens:,} predicted tokens, {reading.bytes:,} bytes, in "
        f"{reading.windows:,} windows."
    )
    cut = f"Left off: {reading.cut_tokens:,} tokens of {reading.cut_documents:,} documents."
    skipped = [f"Not read: {n:,} × {reason}." for reason, n in reading.skipped.items()]
    return [way, read, *([cut] if reading.cut_documents else []), *skipped]
