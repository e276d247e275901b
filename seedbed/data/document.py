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
    prompt: int = 0
    """The first so many messages are only read, whatever their role."""
    tools: list[Any] | None = None
    """Definitions of the tools, which the template reads beside the messages."""


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


def sequence_texts(document: Document) -> list[str]:
    """The text of each sequence of each output, as filters see it."""
    return [_joined(sequence) for sequences in document.texts.values() for sequence in sequences]


def readable(document: Document) -> dict[str, Any]:
    """What people are shown of a document that is left out: `id`, `domain`, `lang`, and `texts` as filters see them, a
    list for each output.
    """
    texts = {output: [_joined(sequence) for sequence in sequences] for output, sequences in document.texts.items()}
    return {"id": document.id, "domain": document.domain, "lang": document.lang, "texts": texts}


def _joined(sequence: Sequence) -> str:
    """Its pieces and messages."""
    return "".join(
        part.text if isinstance(part, Piece) else "\n".join(str(m.get("content") or "") for m in part.messages)
        for part in sequence
    )


def content(document: Document) -> str:
    """Its whole text, as the search for near copies and the held-out split see it and bytes are counted."""
    return "".join(sequence_texts(document))


def text_hash(text: str) -> bytes:
    """16 bytes that tell texts apart, the same everywhere and always; the first 8 decide what is held out."""
    raw = text.encode("utf-8")
    return hashlib.blake2b(raw, digest_size=8).digest() + hashlib.blake2b(raw, digest_size=8, person=b"2").digest()


def identity(document: Document, text_hashed: bytes) -> bytes:
    """16 bytes that tell apart what documents train: texts, masks, where they begin, roles, tools, numbers.

    Of one text, all of it trained, that is ``text_hashed``, the hash of its text.
    """
    match [*document.texts.values(), *document.numbers.values()]:
        case [[[Piece(trained=True)]]]:
            return text_hashed
    whole = json.dumps([document.texts, document.numbers], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(whole.encode("utf-8"), digest_size=16).digest()


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

    ids: np.ndarray  # [n] uint32, or as they are stored
    trained: np.ndarray | None  # [n] bool; None where every token is

    def predicts(self) -> bool:
        """Whether some token is a target: trained, and not the first, which nothing precedes."""
        return len(self.ids) > 1 if self.trained is None else bool(self.trained[1:].any())
