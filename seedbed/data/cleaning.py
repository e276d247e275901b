"""Cleaning of a text: steps by name, applied in the order that the specification lists them."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal

from seedbed.data.markup import strip_html, strip_markdown


def clean_text(text: str, steps: Sequence[str]) -> str:
    """``text`` after each of ``steps`` (`spec.clean`), in order. No step raises, whatever the text."""
    for step in steps:
        text = _STEPS[step](text)
    return text


# An address is ASCII, so it ends where Chinese text goes on, and before punctuation that belongs to the sentence.
_ADDRESS = (
    r"(?:(?<![A-Za-z0-9])(?:https?|ftp)://|(?<![\w@.-])www\.)(?=[A-Za-z0-9\[])"
    r"(?:\([\w\-.~:/?#@!$&'*+,;=%]*+\)|[\w\-.~:/?#\[\]@!$&'*+,;=%])*(?:[\w/#=&$~+%-]|(?<=\)))"
)
_URLS = re.compile(
    rf"""!?+\[(?P<text>[^\[\]]*+)\]\([ ]*+<?+{_ADDRESS}>?+(?:\s++(?:"[^"]*+"|'[^']*+'))?+[ ]*+\)  # Markdown's link
    | (?:\({_ADDRESS}\)|（{_ADDRESS}）|<{_ADDRESS}>)(?![\w:/.])  # brackets go with what they hold
    | [ ]?{_ADDRESS}""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)


def _strip_urls(text: str) -> str:
    """Without http, https, ftp and www addresses; a link of Markdown leaves its text. E-mail addresses stay."""
    if "://" not in text and "www." not in text.lower():
        return text
    return _URLS.sub(lambda match: _strip_urls(match["text"] or ""), text)


# The time of normalization is quadratic in the length of a run of combining marks; writing has a few at most.
_RUN_OF_MARKS = re.compile(r"([^\w\s\x00-\x7f]{64,}+)")


def _normalize(text: str, form: Literal["NFC", "NFKC"]) -> str:
    """``text`` in a normal form of Unicode. A run of 64 combining marks or more stays as it is."""
    if unicodedata.is_normalized(form, text):
        return text
    parts = _RUN_OF_MARKS.split(text)  # texts and runs in turn
    return "".join(
        part
        if index % 2 and any(unicodedata.category(char)[0] == "M" for char in part)
        else unicodedata.normalize(form, part)
        for index, part in enumerate(parts)
    )


def _nfc(text: str) -> str:
    """Composed characters; looks the same."""
    return _normalize(text, "NFC")


def _nfkc(text: str) -> str:
    """Compatible characters as one: ``ﬁ`` is ``fi``, ``①`` is ``1``, ``x²`` is ``x2``, wide ``ＡＢ`` is ``AB``.

    That makes Chinese punctuation narrow (``，：；！？（）`` become ``,:;!?()``, while ``。、《》“”`` stay) and turns
    the wide space of an indented paragraph into a plain one: for Chinese or mathematical text take nfc.
    """
    return _normalize(text, "NFKC")


_LINE_BREAKS = re.compile("\r\n?|[\x85\u2028\u2029]")
_SPACES = re.compile("[\xa0\u2000-\u200a\u202f\u205f]")
_NO_WIDTH = re.compile("[\xad\u200b\u2060\ufeff]")
_BLANK_LINES = re.compile("\n{3,}")


def _whitespace(text: str) -> str:
    """Line breaks as ``\\n``, one blank line at most, none at either end, no blanks at the ends of lines.

    Non-breaking and typographic spaces become plain ones; what has no width (zero-width space, soft hyphen, byte-order
    mark) goes, but not the joiners of emoji and Indic scripts. Safe for code and tables: indentation and spaces inside
    a line stay, and so does the wide space that indents Chinese paragraphs.
    """
    if "\r" in text or not text.isascii():
        text = _NO_WIDTH.sub("", _SPACES.sub(" ", _LINE_BREAKS.sub("\n", text)))
    text = "\n".join(line.rstrip(" \t\u3000") for line in text.split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip("\n")


_STEPS: dict[str, Callable[[str], str]] = {
    "html": strip_html,
    "urls": _strip_urls,
    "markdown": strip_markdown,
    "nfc": _nfc,
    "nfkc": _nfkc,
    "whitespace": _whitespace,
}
