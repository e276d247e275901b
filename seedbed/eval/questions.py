"""The questions that an evaluation asks about text and grammar: each reads its files once, and any model answers it."""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from seedbed.data.texts import Texts, read_texts, texts_hash
from seedbed.eval import minimal_pairs, perplexity
from seedbed.eval.evaluation import Answer, Question
from seedbed.eval.likelihood import BATCH_TOKENS
from seedbed.files.jsonl import OnBad
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel


def about_text(
    paths: Sequence[Path],
    length: int,
    stride: int | None,
    documents: int | None = None,
    text_field: str = "text",
    on_bad: OnBad = "strict",
    batch_tokens: int = BATCH_TOKENS,
) -> Question:
    """Bits per byte, nats per token and perplexity on texts, as `read_texts` reads them, in windows of ``length``
    tokens.

    Raises InputError for a stride that leaves tokens out.
    """
    perplexity.check_stride(stride, length)
    known: dict[tuple[str, tuple[int, ...]], tuple[Texts, str]] = {}  # by what decides the tokens

    def ask(model: LanguageModel, parts: Parts, tell: Callable[[str], None], which: str) -> Answer:
        key = model.tokenizer.hash, tuple(model.tokenizer.start)
        if key not in known:
            tell("reading texts")
            cut = length if stride is None else sys.maxsize
            texts = read_texts(paths, model.tokenizer, cut, documents, text_field, on_bad)
            known[key] = texts, texts_hash(texts.texts)
        texts, digest = known[key]
        name = f"{which} text {digest[:16]}"
        scored, reading = perplexity.perplexity(model, texts, length, stride, parts, tell, name, batch_tokens)
        return Answer(scored, reading, perplexity.told(reading), reading.remarks)

    return ask


def about_pairs(paths: Sequence[Path], limit: int | None = None, batch_tokens: int = BATCH_TOKENS) -> Question:
    """Accuracy on minimal pairs; the files are read, and what is wrong with them said, before any model is opened."""
    pairs = minimal_pairs.read_pairs(paths, limit)
    digest = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()

    def ask(model: LanguageModel, parts: Parts, tell: Callable[[str], None], which: str) -> Answer:
        name = f"{which} pairs {digest[:16]}"
        scored, read = minimal_pairs.minimal_pairs(model, pairs, parts, tell, name, batch_tokens)
        return Answer(scored, read, minimal_pairs.told(read), [])

    return ask
