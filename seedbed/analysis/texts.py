"""Texts for a model to read: documents of files or of a store's held-out part, as tokens."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from seedbed.analysis.newest import of_newest
from seedbed.analysis.stored import is_store, stored_documents
from seedbed.data.document import Document, content
from seedbed.data.inputs import list_inputs
from seedbed.data.records import documents
from seedbed.data.spec import Spec
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import sha256
from seedbed.files.jsonl import OnBad, ReadCounts
from seedbed.train.run import CONFIG, read_config


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


class HasIds(Protocol):
    """What fills a row: tokens."""

    @property
    def ids(self) -> list[int]: ...


_NO_TEXTS = "has no texts of its own; name files, folders of them or a store with --data"
RowT = TypeVar("RowT", bound=HasIds)
ItemT = TypeVar("ItemT")


class Padded(NamedTuple):
    """Texts as rows, padding behind them."""

    ids: Tensor  # [B, T] int64
    doc_ids: Tensor  # [B, T] int64, 0, and -1 for padding


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


def held_out_texts(run: str | Path, tokenizer: Tokenizer, length: int, count: int | None = None) -> Texts:
    """The same of what a run of ours, or the run of a checkpoint, holds out: of its own store."""
    return read_texts([store_of(run)], tokenizer, length, count)


def store_of(run: str | Path) -> Path:
    """The store that a run of ours, or the run of a checkpoint, was trained on.

    Raises InputError where it is no run, or its store is not where it was.
    """
    folder, config = of_newest(run, lambda folder: (folder, read_config(folder)))
    places = [Path(place) for place in [config.data.store] if place is not None]
    home, own = folder.resolve().parent.parent, Path(config.run.dir or "").parts
    if len(own) < len(home.parts) and home.parts[-len(own) :] == own:
        # a relative place holds where the run was started from
        places += [home.parents[len(own) - 1] / place for place in places]
    store = next((place for place in places if is_store(place)), None)
    if store is None:
        raise InputError(f"{run}: its store, {config.data.store}, is not there; name texts or a store with --data")
    return store


def shared_store(models: Sequence[str | Path]) -> Path:
    """The one store of all runs of ours among ``models``.

    Raises InputError where there is no run, and where two were trained on different stores: what one holds out may be
    what the other was trained on.
    """
    runs = [model for model in models if (Path(model) / CONFIG).is_file()]
    if not runs:
        raise InputError(f"{models[0]}: {_NO_TEXTS}")
    stores = [store_of(run) for run in runs]
    for run, store in zip(runs, stores, strict=True):
        if sha256(store / "header.json") != sha256(stores[0] / "header.json"):
            raise InputError(
                f"{runs[0]} and {run}: were trained on different stores, {stores[0]} and {store}; name files, folders "
                "of them or a store with --data, of text that neither was trained on"
            )
    return stores[0]


def texts_for(
    model: str | Path,
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    length: int,
    count: int | None = None,
    text_field: str = "text",
    on_bad: OnBad = "strict",
) -> Texts:
    """The texts at ``paths``; where there are none, those that the run ``model`` holds out.

    Raises InputError for a model of another maker without texts.
    """
    if paths:
        return read_texts(paths, tokenizer, length, count, text_field, on_bad)
    if not (Path(model) / CONFIG).is_file():
        raise InputError(f"{model}: {_NO_TEXTS}")
    return held_out_texts(model, tokenizer, length, count)


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
