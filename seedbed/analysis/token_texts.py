"""Texts to show token by token: which ones, and what each token stands for."""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np

from seedbed.data.texts import Text
from seedbed.data.tokenizer import Tokenizer


def spread(texts: Sequence[Text], count: int) -> list[Text]:
    """``count`` of ``texts``: languages take turns, and in each its domains, the first text of each before the second
    of any; without a look at what any model makes of them.
    """
    languages: dict[str, dict[str, list[Text]]] = {}
    for text in texts:
        languages.setdefault(text.lang, {}).setdefault(text.domain, []).append(text)
    return _in_turns([_in_turns(list(domains.values())) for domains in languages.values()])[:count]


def _in_turns(groups: Sequence[Sequence[Text]]) -> list[Text]:
    return [text for text in chain.from_iterable(zip_longest(*groups)) if text is not None]


def pieces(
    text: Text, tokenizer: Tokenizer, lengths: np.ndarray, end: int
) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """The first ``end`` tokens of ``text`` as pieces that can be shown: what stands there, and for each token its place
    and its own text. Tokens that share a character make one piece; then a token's own text is its bytes, ``⟨E4 BD⟩``,
    as is what stands there where the character is cut.

    ``lengths`` [V] are the tokenizer's ``token_bytes``. Where decoding does not give the text back, each token is
    decoded by itself.
    """
    names = {i: name for name, i in tokenizer.special_tokens.items()}
    raw = text.text.encode("utf-8")
    exact = tokenizer.lossless and raw.startswith(tokenizer.decode(text.ids).rstrip("\ufffd").encode("utf-8"))
    at, start, held = 0, 0, []  # bytes read, first byte and tokens of the piece in the making
    for place, token in enumerate(text.ids[:end]):
        if lengths[token] == 0 or not exact:
            own = names.get(token) or tokenizer.decode([token])
            yield own, [(place, own)]
            continue
        held.append((place, raw[at : at + int(lengths[token])]))
        at += int(lengths[token])
        if at == len(raw) or raw[at] & 0xC0 != 0x80:  # a character begins next
            yield _piece(raw[start:at], held)
            start, held = at, []
    if held:
        yield _piece(raw[start:at], held)


def _piece(raw: bytes, held: list[tuple[int, bytes]]) -> tuple[str, list[tuple[int, str]]]:
    return _own(raw), [(place, _own(part)) for place, part in held]


def _own(part: bytes) -> str:
    try:
        return part.decode("utf-8")
    except UnicodeDecodeError:
        return f"⟨{part.hex(' ').upper()}⟩"
