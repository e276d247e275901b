"""The held-out documents of a store, put together again from its bins."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seedbed.data.document import Document, text_document
from seedbed.data.layout import ENDS
from seedbed.data.split import Split
from seedbed.data.store import Store
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError


class Stored(NamedTuple):
    """The tokens of a document, or of its first part where packing moved the rest elsewhere."""

    place: str
    """`bin:token` of its beginning."""
    group: int
    ids: np.ndarray  # [n]


def is_store(path: str | Path) -> bool:
    return (Path(path) / "header.json").is_file()


def stored_documents(path: str | Path, skipped: Counter[str]) -> list[Iterator[Document]]:
    """The held-out documents of the store at ``path`` as text, those of each domain and language by themselves.

    Control tokens are left out. Text that packing cut off is not in the store; what does not follow on its beginning
    is counted in ``skipped``. Raises InputError where nothing is held out.
    """
    store = Store(path)
    groups = store.header["groups"]
    by_group: dict[int, list[Stored]] = {}
    for document in joined(store.split("heldout"), store.header["packing"] == "simple", skipped):
        by_group.setdefault(document.group, []).append(document)
    if not by_group:
        raise InputError(f"{path}: holds nothing out; prepare it with --heldout above 0, or name other texts")
    tokenizer = store.tokenizer()
    return [
        _texts(store, tokenizer, found, groups[group]["domain"], groups[group]["lang"])
        for group, found in sorted(by_group.items())
    ]


def joined(split: Split, in_turn: bool, skipped: Counter[str]) -> Iterator[Stored]:
    """The documents that begin in ``split``, each with as many of its segments as are known to follow one another from
    bin to bin, in the order of their beginnings; other segments are counted.

    ``in_turn`` (packing simple): one document stands behind another. Otherwise only segments that fill a bin do: the
    rests come after all of those, and one that begins where the last of them ends may be another document's.
    """
    current: Stored | None = None  # goes on behind what was read
    for stored, position, goes_on in _segments(split):
        follows = current is not None and (position, stored.group) == (len(current.ids), current.group)
        if current is not None and follows and (in_turn or len(stored.ids) == split.seq_len):
            current = current._replace(ids=np.concatenate((current.ids, stored.ids)))
        else:
            if current is not None:
                yield current
            current = stored if position == 0 else None
            if current is None:
                skipped["the rest of a document, packed elsewhere"] += 1
        if current is not None and not goes_on:
            yield current
            current = None
    if current is not None:
        yield current


def _segments(split: Split) -> Iterator[tuple[Stored, int, bool]]:
    """Each run of a document's tokens, its place in the document, and whether the document goes on behind it."""
    for number in range(len(split)):
        segments, real = split.segments(number)
        ids = split.tokens(number).ids
        for segment, end in zip(segments, [*segments["offset"][1:], real], strict=True):
            begin = int(segment["offset"])
            stored = Stored(f"{number}:{begin}", int(segment["group"]), ids[begin:end])
            yield stored, int(segment["position"]), int(segment["next"]) != ENDS


def _texts(store: Store, tokenizer: Tokenizer, found: list[Stored], domain: str, lang: str) -> Iterator[Document]:
    for stored in found:
        text = tokenizer.decode(stored.ids.tolist()).rstrip("\ufffd")  # a character that a bin's end cut in two
        yield text_document(f"{store.path.name}:{stored.place}", text, "heldout", domain, lang)
