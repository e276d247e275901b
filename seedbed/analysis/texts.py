"""Texts for a model to read: documents of files or of a store's held-out part, as tokens."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from seedbed.data.document import content
from seedbed.data.inputs import list_inputs
from seedbed.data.records import documents
from seedbed.data.spec import Spec
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.jsonl import ReadCounts


class Text(NamedTuple):
    """A document, or as much of it as is read."""

    id: str
    domain: str
    lang: str
    text: str
    ids: list[int]
    """Tokens, begin-of-text first where the tokenizer has one, at most so many as the model reads."""
    cut: int
    """Tokens that are left off behind them."""


@dataclass
class Texts:
    """What is read, and what was left out on the way."""

    texts: list[Text]
    skipped: Counter[str] = field(default_factory=Counter)
    """Records without a usable text, and texts of a single token, by reason."""

    @property
    def tokens(self) -> int:
        return sum(len(text.ids) for text in self.texts)

    @property
    def cut(self) -> int:
        return sum(text.cut for text in self.texts)


class HasIds(Protocol):
    """What fills a row: tokens."""

    @property
    def ids(self) -> list[int]: ...


RowT = TypeVar("RowT", bound=HasIds)


class Padded(NamedTuple):
    """Texts as rows, padding behind them."""

    ids: Tensor  # [B, T] int64
    doc_ids: Tensor  # [B, T] int64, 0, and -1 for padding


def read_texts(
    paths: Sequence[str | Path], tokenizer: Tokenizer, length: int, count: int | None = None, text_field: str = "text"
) -> Texts:
    """The first ``count`` documents (None: all) of files of any kind that `data prepare` reads, each cut to ``length``
    tokens.

    Raises InputError for a file that is missing or damaged, a record without the field, and where nothing is left.
    """
    spec = Spec.model_validate(
        {
            "sources": [str(path) for path in paths],
            "tokenizer": str(tokenizer.folder),
            "sections": [{"field": text_field, "action": "train"}],
        }
    )
    counts = ReadCounts()
    found = Texts([])
    start = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    for file in list_inputs(spec.sources):
        for document in documents(file, spec, counts):
            if count is not None and len(found.texts) == count:
                break
            text = content(document)
            ids = start + tokenizer.encode(text)
            if len(ids) < 2:
                found.skipped["a single token"] += 1
                continue
            cut = max(len(ids) - length, 0)
            found.texts.append(Text(document.id, document.domain, document.lang, text, ids[:length], cut))
    found.skipped += counts.skipped
    if not found.texts:
        why = ", ".join(f"{n:,} × {reason}" for reason, n in found.skipped.items()) or "the input is empty"
        raise InputError(f"{paths[0]}: no text to read ({why})")
    return found


def batches(texts: Iterable[RowT], tokens: int) -> Iterator[list[RowT]]:
    """Texts of like length together, longest first, so that rows x longest is at most ``tokens`` (one row at least)."""
    batch: list[RowT] = []
    for text in sorted(texts, key=lambda text: len(text.ids), reverse=True):
        if batch and (len(batch) + 1) * len(batch[0].ids) > tokens:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def padded(texts: Sequence[HasIds], pad_id: int) -> Padded:
    """One text a row, filled up to the longest."""
    longest = max(len(text.ids) for text in texts)
    ids = torch.full((len(texts), longest), pad_id, dtype=torch.int64)
    doc_ids = torch.full_like(ids, -1)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = torch.tensor(text.ids)
        doc_ids[row, : len(text.ids)] = 0
    return Padded(ids, doc_ids)
