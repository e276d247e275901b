"""Texts for a model to read: documents of files or of a store's held-out part, as tokens."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from seedbed.data.document import Document, content
from seedbed.data.inputs import list_inputs
from seedbed.data.records import documents
from seedbed.data.spec import Spec
from seedbed.data.stored import is_store, stored_documents
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.jsonl import OnBad, ReadCounts


class Text(NamedTuple):
    """A document, or as much of it as is read."""

    id: str
    domain: str
    lang: str
    text: str
    ids: list[int]
    """Tokens, at most so many as the model reads; first what the tokenizer begins a text with."""
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
        """Tokens that were left off."""
        return sum(text.cut for text in self.texts)

    @property
    def cut_texts(self) -> int:
        """Texts of which tokens were left off."""
        return sum(text.cut > 0 for text in self.texts)


ItemT = TypeVar("ItemT")


def read_texts(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    length: int,
    count: int | None = None,
    text_field: str = "text",
    on_bad: OnBad = "strict",
) -> Texts:
    """``count`` documents (None: all) of files of any kind that `data prepare` reads, or of the held-out part of
    stores, each cut to ``length`` tokens.

    They are the first ones of each file, of a store the first of each domain and language, taken in turns, so that
    none has more than another by more than one where there are enough. Raises InputError for a file that is missing or
    damaged, a record without the field (naming those it has; counted where ``on_bad`` is "skip"), a store that holds
    nothing out, and where nothing is left.
    """
    if not paths:
        raise InputError("no texts to read; name files, folders of them or a store with --data")
    counts, found = ReadCounts(), Texts([])
    sources = _sources(paths, tokenizer, text_field, on_bad, counts)
    found.texts = in_turns([_read(source, tokenizer, length, found.skipped) for source in sources], count)
    found.skipped += counts.skipped
    if not found.texts:
        why = ", ".join(f"{n:,} × {reason}" for reason, n in found.skipped.items()) or "the input is empty"
        raise InputError(f"{paths[0]}: no text to read ({why})")
    return found


def texts_hash(texts: Iterable[Text]) -> str:
    """SHA-256 of what is read, tokens with domains and languages: with the models, what decides all numbers."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{text.domain}\0{text.lang}\0".encode())
        digest.update(np.array([len(text.ids), *text.ids], dtype="<i8").tobytes())
    return digest.hexdigest()


def _sources(
    paths: Sequence[str | Path], tokenizer: Tokenizer, text_field: str, on_bad: OnBad, counts: ReadCounts
) -> list[Iterator[Document]]:
    """The documents of each file, and of each domain and language of a store; no file is opened before it is read."""
    files = [str(path) for path in paths if not is_store(path)]
    sources: list[Iterator[Document]] = []
    if files:
        sections = [{"field": text_field, "action": "train"}]
        asked = {"sources": files, "tokenizer": str(tokenizer.folder), "sections": sections, "on_bad": on_bad}
        spec = Spec.model_validate(asked)
        sources += [documents(file, spec, counts) for file in list_inputs(spec.sources)]
    stores: set[Path] = set()
    for path in paths:
        if is_store(path):
            if (place := Path(path).resolve()) in stores:
                raise InputError(f"{path}: given twice; its documents would be read twice")
            stores.add(place)
            sources += stored_documents(path, counts.skipped)
    return sources


def _read(source: Iterable[Document], tokenizer: Tokenizer, length: int, skipped: Counter[str]) -> Iterator[Text]:
    """The documents as tokens; those that nothing can be predicted of are counted."""
    for document in source:
        text = content(document)
        ids = tokenizer.start + tokenizer.encode(text)
        if len(ids) < 2:
            skipped["a single token"] += 1
        else:
            cut = max(len(ids) - length, 0)
            yield Text(document.id, document.domain, document.lang, text, ids[:length], cut)


def in_turns(sources: Sequence[Iterator[ItemT]], count: int | None) -> list[ItemT]:
    """One of each source after another until there are ``count`` (None: all); in the order of the sources."""
    if count is None:
        return list(chain.from_iterable(sources))
    taken: list[list[ItemT]] = [[] for _ in sources]
    turns = deque(range(len(sources)))
    while turns and count:
        place = turns.popleft()
        if (item := next(sources[place], None)) is not None:
            taken[place].append(item)
            turns.append(place)
            count -= 1
    return list(chain.from_iterable(taken))
