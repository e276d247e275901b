"""How well a tokenizer compresses text, by domain and language."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from seedbed.data.document import Document, content
from seedbed.data.tokenizer import Tokenizer

_BATCH = 64  # documents encoded at a time


@dataclass
class Compression:
    """Sums over documents; bytes are those of the text in UTF-8, tokens without bos and eos."""

    domain: str
    lang: str
    documents: int = 0
    bytes: int = 0
    characters: int = 0
    tokens: int = 0

    @property
    def bytes_per_token(self) -> float:
        """NaN where there is no token."""
        return self.bytes / self.tokens if self.tokens else float("nan")

    @property
    def chars_per_token(self) -> float:
        """NaN where there is no token."""
        return self.characters / self.tokens if self.tokens else float("nan")

    def add(self, other: "Compression") -> None:
        self.documents += other.documents
        self.bytes += other.bytes
        self.characters += other.characters
        self.tokens += other.tokens


def compression(tokenizer: Tokenizer, documents: Iterable[Document]) -> list[Compression]:
    """A row for each domain and language, sorted; memory holds a few dozen documents at a time."""
    rows: dict[tuple[str, str], Compression] = {}
    waiting = iter(documents)
    while batch := list(islice(waiting, _BATCH)):
        texts = [content(document) for document in batch]
        for document, text, ids in zip(batch, texts, tokenizer.encode_batch(texts), strict=True):
            row = Compression(document.domain, document.lang, 1, len(text.encode("utf-8")), len(text), len(ids))
            rows.setdefault((row.domain, row.lang), Compression(row.domain, row.lang)).add(row)
    return [rows[key] for key in sorted(rows)]


def total(rows: Iterable[Compression]) -> Compression:
    """The sums over all rows."""
    result = Compression("total", "")
    for row in rows:
        result.add(row)
    return result
