"""Cleaning of a text: steps by name, applied in the order that the specification lists them."""

import unicodedata
from collections.abc import Callable, Sequence


def clean_text(text: str, steps: Sequence[str]) -> str:
    """``text`` after each of ``steps`` (`spec.clean`), in order. No step raises for any text that is valid Unicode."""
    for step in steps:
        text = _STEPS[step](text)
    return text


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


_STEPS: dict[str, Callable[[str], str]] = {"nfc": _nfc}
