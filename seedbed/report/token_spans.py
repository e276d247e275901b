"""Texts coloured token by token, as markup: no script, and every text escaped."""

import math
from typing import NamedTuple

from markupsafe import Markup, escape

from seedbed.report.render import number, render, signed
from seedbed.report.style import BLUE, VERMILLION
from seedbed.report.tokens_rows import ShownPiece, ShownText, ShownToken

STEPS = 10
"""Shades on each side of white."""
STRENGTH = 0.6
"""Of the strongest shade: black text stays readable on it."""
_MARKS = {"\n": "↵", "\t": "⇥", "\r": "␍"}
_SIGNS = str.maketrans(_MARKS | {" ": "␣"})


class Span(NamedTuple):
    """A piece of text as it is shown."""

    kind: str
    """Class: the shade, or that nothing predicts it."""
    text: Markup
    """With signs before newlines and tabs."""
    about: str
    """Shown while the pointer is on it."""


def coloured(texts: list[ShownText], a: str, b: str, vocabulary: int) -> Markup:
    """Legend and texts, blue where ``b`` is better and vermillion where ``a`` is."""
    titled = [
        {
            "title": f"{_visible(', '.join(filter(None, (text.id, text.domain, text.lang))))}: "
            f"mean gain {number(text.gain)} nats per token",
            "spans": [_span(piece, vocabulary) for piece in text.pieces],
            "left_off": text.left_off,
        }
        for text in texts
    ]
    return Markup(render("tokens.html", texts=titled, colours=shades(), a=a, b=b))


def shades() -> list[str]:
    """From A better, vermillion, over white to B better, blue."""
    found = []
    for level in range(-STEPS, STEPS + 1):
        colour, share = (BLUE if level > 0 else VERMILLION), STRENGTH * abs(level) / STEPS
        channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        found.append("#" + "".join(f"{round(255 + (channel - 255) * share):02x}" for channel in channels))
    return found


def _span(piece: ShownPiece, vocabulary: int) -> Span:
    text = escape(_visible(piece.text))
    for character, sign in _MARKS.items():
        text = text.replace(character, Markup(f"<i>{sign}</i>{character}"))
    gains = [
        token.loss_a - token.loss_b for token in piece.tokens if token.loss_a is not None and token.loss_b is not None
    ]
    about = "\n".join(_about(token, vocabulary) for token in piece.tokens)
    kind = f"g{STEPS + round(STEPS * math.tanh(sum(gains) / 2))}" if gains else "unpredicted"
    return Span(kind, text, about)


def _about(token: ShownToken, vocabulary: int) -> str:
    name = f"{_visible(token.text).translate(_SIGNS)}  (id {token.id})"
    if token.loss_a is None or token.loss_b is None or token.rank_a is None or token.rank_b is None:
        return f"{name}  not predicted: nothing stands before it"
    gain = token.loss_a - token.loss_b
    return (
        f"{name}\n"
        f"  A  p {_probability(token.loss_a)}  rank {token.rank_a:,} of {vocabulary:,}\n"
        f"  B  p {_probability(token.loss_b)}  rank {token.rank_b:,} of {vocabulary:,}\n"
        f"  gain {signed(gain)} nats  probability gain {signed(math.tanh(gain / 2))}"
        f"  difficulty {(token.loss_a + token.loss_b) / 2:.3f} nats"
    )


def _probability(loss: float) -> str:
    return f"{math.exp(-loss):.4f}" if loss < 6.9 else f"{math.exp(-loss):.1e}"


def _visible(text: str) -> str:
    """``text`` with escapes (`\\x1b`, `\\u202e`) for what cannot be seen or turns the direction of text."""
    return "".join(c if c.isprintable() or c in _MARKS else c.encode("unicode_escape").decode("ascii") for c in text)
