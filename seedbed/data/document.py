"""What a record becomes before it is tokens: sequences of text with what is trained in them."""

import hashlib
import json
from typing import Any, Literal, NamedTuple

import numpy as np

SplitName = Literal["train", "heldout"]


class Piece(NamedTuple):
    """Text whose tokens are predicted, or only read."""

    text: str
    trained: bool


class Conversation(NamedTuple):
    """Messages (`role`, `content`, and what else the template reads) of which some roles are trained."""

    messages: list[dict[str, Any]]
    roles: list[str]


Sequence = list[Piece | Conversation]


class Document(NamedTuple):
    """One record. ``texts`` has the sequences of each output, ``numbers`` the values: one each, or as many as a list
    in the record has."""

    id: str
    where: str
    """`file:line`."""
    domain: str
    lang: str
    split: SplitName | None
    """Set where the source decides it; otherwise the text does."""
    texts: dict[str, list[Sequence]]
    numbers: dict[str, list[float]]


def text_document(id: str, text: str, split: SplitName | None = None, domain: str = "", lang: str = "") -> Document:
    """A document that is one text, all of it trained."""
    return Document(id, id, domain, lang, split, {"text": [[Piece(text, True)]]}, {})


def content(document: Document) -> str:
    """Its text, as filters and the search for copies see it: all pieces and messages of all outputs, joined."""
    return "".join(
        part.text if isinstance(part, Piece) else "\n".join(str(m.get("content") or "") for m in part.messages)
        for sequences in document.texts.values()
        for sequence in sequences
        for part in sequence
    )


def text_hash(text: str) -> bytes:
    """16 bytes that tell texts apart, the same everywhere and always; the first 8 decide what is held out."""
    raw = text.encode("utf-8")
    return hashlib.blake2b(raw, digest_size=8).digest() + hashlib.blake2b(raw, digest_size=8, person=b"2").digest()


def dump(document: Document) -> str:
    """One line of JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def parse(line: str | bytes) -> Document:
    """The document of a line that `dump` wrote."""
    id, where, domain, lang, split, texts, numbers = json.loads(line)
    texts = {name: [parse_sequence(sequence) for sequence in sequences] for name, sequences in texts.items()}
    return Document(id, where, domain, lang, split, texts, numbers)


def parse_sequence(values: list[Any]) -> Sequence:
    """The sequence of its JSON values: a piece begins with its text, a conversation with its messages."""
    return [Piece(*part) if isinstance(part[0], str) else Conversation(*part) for part in values]


class Encoded(NamedTuple):
    """A sequence as tokens."""

    ids: np.ndarray  # [n] uint32
    trained: np.ndarray | None  # [n] bool; None where every token is
