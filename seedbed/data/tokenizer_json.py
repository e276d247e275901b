"""What a `tokenizer.json` says about bytes and spaces, whichever kind of vocabulary it holds."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.errors import InputError

MAX_VOCABULARY = 2**24
"""Far above any tokenizer there is; an id beyond it is damage, and models and tables would not fit in memory."""
_METASPACE = "\u2581"
"""Stands for a space in SentencePiece's vocabularies."""
_ONE_BYTE = re.compile("<0x[0-9A-F]{2}>")
_SEQUENCES = ("normalizers", "pretokenizers", "decoders")


class Spelling(NamedTuple):
    """How the tokens of a vocabulary stand for the bytes of a text."""

    byte_level: bool
    """One character a byte (GPT-2)."""
    metaspace: bool
    """The space is U+2581 (SentencePiece)."""
    byte_fallback: bool
    """`<0x0A>` is a byte."""
    prefix: str
    """Of a token that goes on in a word, `##` (WordPiece); stands for no byte."""
    suffix: str
    """Of a token that ends a word; stands for no byte."""

    def n_bytes(self, token: str) -> int:
        """Bytes of text that ``token`` stands for."""
        if self.byte_level:
            return len(token.removesuffix(self.suffix))
        if self.byte_fallback and _ONE_BYTE.fullmatch(token):
            return 1
        if self.metaspace:
            token = token.replace(_METASPACE, " ")
        return len(token.removeprefix(self.prefix).removesuffix(self.suffix).encode("utf-8"))


def spelling(content: dict[str, Any]) -> Spelling:
    """The spelling of the tokenizer whose file holds ``content``."""
    decoders = list(_parts(content.get("decoder")))
    kinds = {part["type"] for part in decoders}
    model = content["model"]
    return Spelling(
        byte_level="ByteLevel" in kinds,
        metaspace=any(_METASPACE in (part.get("replacement"), _pattern(part)) for part in decoders),
        byte_fallback="ByteFallback" in kinds,
        prefix=model.get("continuing_subword_prefix") or "",
        suffix=model.get("end_of_word_suffix") or "",
    )


def check_ids(content: dict[str, Any], file: Path) -> None:
    """Raise InputError unless the tokens of the tokenizer in ``file`` have ids of their own, below MAX_VOCABULARY."""
    vocab = content["model"]["vocab"]
    pieces = vocab.items() if isinstance(vocab, dict) else ((piece, i) for i, (piece, _) in enumerate(vocab))
    added = ((token["content"], token["id"]) for token in content.get("added_tokens") or ())
    tokens: dict[int, str] = {}
    for token, i in chain(pieces, added):
        if (other := tokens.setdefault(i, token)) != token:
            raise InputError(f"{file}: {other!r} and {token!r} have the same id, {i}; make or copy the tokenizer again")
    if not tokens:
        raise InputError(f"{file}: holds no token; make or copy the tokenizer again")
    if max(tokens) >= MAX_VOCABULARY:
        raise InputError(
            f"{file}: the id of {tokens[max(tokens)]!r} is {max(tokens)}, above {MAX_VOCABULARY - 1}; make or copy the "
            "tokenizer again"
        )


def unknown_token(content: dict[str, Any]) -> str | None:
    """The token of text that the vocabulary cannot express."""
    model = content["model"]
    if model.get("unk_id") is not None:  # Unigram: a list of (token, score)
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def without_prefix_space(content: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer, but a text keeps its start: no space is added before it, and none taken off by decoding."""
    content = {**content, "normalizer": _without(content.get("normalizer"), "Prepend")}
    content["pre_tokenizer"] = _adding_no_space(content.get("pre_tokenizer"))
    content["decoder"] = _adding_no_space(_without(content.get("decoder"), "Strip"))
    return content


def _parts(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder; those inside it where it is a sequence."""
    if part is not None:
        yield part
        for key in _SEQUENCES:
            for inner in part.get(key, ()):
                yield from _parts(inner)


def _pattern(part: dict[str, Any]) -> str | None:
    """What a Replace looks for, where that is a plain string."""
    pattern = part.get("pattern")
    return pattern.get("String") if isinstance(pattern, dict) else None


def _without(part: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    if part is None or part["type"] == kind:
        return None
    part = dict(part)
    for key in _SEQUENCES:
        if key in part:
            part[key] = [kept for inner in part[key] if (kept := _without(inner, kind)) is not None]
    return part


def _adding_no_space(part: dict[str, Any] | None) -> dict[str, Any] | None:
    if part is None:
        return None
    part = dict(part)
    if part["type"] == "ByteLevel":
        part["add_prefix_space"] = False
    elif part["type"] == "Metaspace":
        part["prepend_scheme"] = "never"
    for key in _SEQUENCES:
        if key in part:
            part[key] = [_adding_no_space(inner) for inner in part[key]]
    return part
