"""Coloured texts: shades, what the pointer shows, and nothing of a text that a browser would take for markup."""

import math
from html.parser import HTMLParser

import pytest

from seedbed.report.style import BLUE, VERMILLION
from seedbed.report.token_spans import STEPS, coloured, shades
from seedbed.report.tokens_rows import ShownPiece, ShownText, ShownToken


def token(text: str, p_a: float | None = 0.2, p_b: float | None = 0.6) -> ShownToken:
    if p_a is None or p_b is None:
        return ShownToken(7, text, None, None, None, None)
    return ShownToken(7, text, -math.log(p_a), -math.log(p_b), 1234, 1)


class Spans(HTMLParser):
    """Attributes and text of each span in the coloured texts, as a browser reads them; names of all other elements."""

    def __init__(self, markup: str):
        super().__init__()
        self.spans: list[tuple[dict, str]] = []
        self.others: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        if tag == "span":
            self.spans.append((dict(attrs), ""))
        else:
            self.others.add(tag)

    def handle_data(self, data):
        if self.spans:
            self.spans[-1] = (self.spans[-1][0], self.spans[-1][1] + data)


def spans(*pieces: ShownPiece, **text) -> Spans:
    shown = ShownText(**({"id": "t", "domain": "", "lang": "", "left_off": 0, "gain": 0.5} | text), pieces=list(pieces))
    return Spans(str(coloured([shown], "one", "two", 4096)))


def test_what_the_pointer_shows():
    (attributes, text), *_ = spans(ShownPiece(" cat", [token(" cat")])).spans
    assert attributes["class"] == f"g{STEPS + 5}"  # (0.6 - 0.2) / 0.8 = 0.5
    assert text.strip("\n") == " cat"
    assert attributes["data-about"] == (
        "␣cat  (id 7)\n"
        "  A  p 0.2000  rank 1,234 of 4,096\n"
        "  B  p 0.6000  rank 1 of 4,096\n"
        "  gain +1.099 nats  probability gain +0.500  difficulty 1.060 nats"
    )


def test_the_keyboard_reaches_each_token():
    shown = ShownText("t", "", "", [ShownPiece(" cat", [token(" cat")]), ShownPiece("s", [token("s")])], 0, 0.5)
    markup = str(coloured([shown], "one", "two", 4096))
    found = Spans(markup)
    assert [attributes.get("tabindex") for attributes, _ in found.spans] == ["0", "0"]
    assert ".gains span:hover::after, .gains span:focus-visible::after { content: attr(data-about)" in markup
    assert "script" not in found.others


def test_tokens_of_one_character_are_one_span_with_the_gain_of_both():
    piece = ShownPiece("é", [token("C3", 0.5, 0.25), token("A9", 0.5, 0.1)])
    (attributes, _), *_ = spans(piece).spans
    assert attributes["class"] == f"g{STEPS + round(STEPS * (0.025 - 0.25) / (0.025 + 0.25))}"
    assert attributes["data-about"].count("(id 7)") == 2
    assert attributes["data-about"].startswith("C3")


def test_what_nothing_predicts_has_no_shade():
    (attributes, _), *_ = spans(ShownPiece("<|bos|>", [token("<|bos|>", None, None)])).spans
    assert attributes["class"] == "unpredicted"
    assert "not predicted" in attributes["data-about"]


@pytest.mark.parametrize(("p_a", "shade"), [(1.0, "g0"), (1e-300, "g20")])
def test_extremes_have_the_last_shades(p_a, shade):
    (attributes, _), *_ = spans(ShownPiece("x", [token("x", p_a, 1e-150)])).spans
    assert attributes["class"] == shade


HOSTILE = '<script>alert("1")</script> & \'">\n\t\u202e\x1b[31m'


def test_texts_stay_text():
    found = spans(ShownPiece(HOSTILE, [token(HOSTILE)]), id=HOSTILE, domain=HOSTILE, lang=HOSTILE)
    (attributes, text), *_ = found.spans
    assert '<script>alert("1")</script> & \'">' in text
    assert found.others == {"style", "div", "b", "i", "h3"}
    assert set(attributes) == {"class", "data-about", "tabindex"}
    assert '<script>alert("1")</script>␣&␣\'">↵⇥\\u202e\\x1b[31m' in attributes["data-about"]
    assert "↵\n⇥\t\\u202e\\x1b" in text


def test_a_name_of_a_model_stays_text():
    markup = str(coloured([], "<b onclick=x>", "two", 9))
    assert "&lt;b onclick=x&gt;" in markup


def test_tokens_that_are_left_off_are_counted():
    shown = ShownText("t", "", "", [ShownPiece("x", [token("x")])], 1234, 0.5)
    assert "1,234 more tokens of this document are not shown." in coloured([shown], "a", "b", 9)


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_shades_go_from_vermillion_over_white_to_blue_and_text_is_readable_on_them():
    found = shades()
    assert len(found) == 2 * STEPS + 1
    assert found[STEPS] == "#ffffff"
    for place, colour in ((0, VERMILLION), (-1, BLUE)):
        mixed = [round(255 + (int(colour[i : i + 2], 16) - 255) * 0.6) for i in (1, 3, 5)]
        assert [int(found[place][i : i + 2], 16) for i in (1, 3, 5)] == mixed
    assert all((luminance(colour) + 0.05) / (luminance("#222222") + 0.05) > 4.5 for colour in found)
