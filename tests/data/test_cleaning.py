import time
import unicodedata
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.cleaning import clean_text
from seedbed.data.spec import Spec
from seedbed.files.jsonl import read_jsonl

STEPS = get_args(get_args(Spec.model_fields["clean"].annotation)[0])
IDEMPOTENT = ["urls", "nfc", "nfkc", "whitespace"]
MARKS = (
    "< > </b> <p> <!-- --> &lt; & [ ]( ) * _ ` ``` # - | $ \\ http://a.b/c www.x.org "
    "\0 \r \ufdd0 \ufdd1 e\u0301 \u200b \u3000 文 a"
)
ODD = st.lists(st.sampled_from([*MARKS.split(" "), " ", "\n"]) | st.text(max_size=3), max_size=30).map("".join)
ADDRESSES = st.lists(st.sampled_from(["http://a.b", "(", ")", " ", ".", "文", "x\u0301", "\n", "\t", "ﬁ"])).map("".join)
HARD = "< [ * a _ ` ![ > \\( $a & <a <!-- <script> <p> \n \u0301\u0316 \u0f73 http://a( www. (http://a) |a [a[ **“"


def test_steps_are_those_of_the_specification_in_its_order():
    for step in STEPS:
        assert clean_text("plain text", [step]) == "plain text"
    assert clean_text("&lt;b&gt;x</b>", ["html"]) == "<b>x"
    assert clean_text("&amp;amp;", ["html", "html"]) == "&"
    assert clean_text("ｈttp://a.b", ["urls", "nfkc"]) == "http://a.b"
    assert clean_text("ｈttp://a.b", ["nfkc", "urls"]) == ""
    assert clean_text(" &nbsp;", []) == " &nbsp;"


@given(st.text() | ODD)
def test_no_text_makes_a_step_fail(text):
    for step in STEPS:
        clean_text(text, [step]).encode("utf-8")


@pytest.mark.parametrize("step", IDEMPOTENT)
@given(text=st.text() | ADDRESSES)
def test_twice_is_once(step, text):
    once = clean_text(text, [step])
    assert clean_text(once, [step]) == once


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("see https://x.org/a?b=c&d#e for more", "see for more"),
        ("see http://x.org.", "see."),
        ("见https://x.org/路径", "见路径"),
        ("（见：https://x.org/a）。", "（见：）。"),
        ("文献（https://x.org/a）说", "文献说"),
        ("[the page](https://x.org/a_(b)) and ![a cat](http://x.org/c.png \"t\")", "the page and a cat"),
        ("<https://x.org> (www.y.com/z), ftp://f.g/h", " ,"),
        ("[http://x.org](http://x.org)!", "!"),
        ("[local](page.html) stays", "[local](page.html) stays"),
        ("me@www.x.org, mailto:me@x.org", "me@www.x.org, mailto:me@x.org"),
        ("http:// and www. and xhttp://y", "http:// and www. and xhttp://y"),
        ("HTTPS://X.ORG/", ""),
        ("https://en.wikipedia.org/wiki/A_(b)_c, too", ", too"),
    ],
)  # fmt: skip
def test_urls(text, cleaned):
    assert clean_text(text, ["urls"]) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a \t\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("a\r\n\r\nb", "a\n\nb"),
        ("\n\n\na\n\n\n\nb\n", "a\n\nb"),
        ("def f():\n    return  1  # x\n", "def f():\n    return  1  # x"),
        ("a\u00a0b\u202fc", "a b c"),
        ("zero\u200bwidth\ufeff soft\u00adhyphen", "zerowidth softhyphen"),
        ("\u3000\u3000段落\u3000", "\u3000\u3000段落"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("    indented first", "    indented first"),
        ("a\n  \n\t\n \nb", "a\n\nb"),
    ],
)
def test_whitespace(text, cleaned):
    assert clean_text(text, ["whitespace"]) == cleaned


def test_normal_forms():
    assert clean_text("e\u0301", ["nfc"]) == "é"
    assert clean_text("ﬁ①，", ["nfc"]) == "ﬁ①，"
    assert clean_text("ﬁ①，。ＡＢx²", ["nfkc"]) == "fi1,。ABx2"


@given(st.text())
def test_normal_forms_are_those_of_unicode(text):
    assert clean_text(text, ["nfc"]) == unicodedata.normalize("NFC", text)
    assert clean_text(text, ["nfkc"]) == unicodedata.normalize("NFKC", text)


def test_only_a_long_run_of_marks_stays_as_it_is():
    marks = "\u0316\u0301"
    for count in (10, 31):
        text = f"e\u0301 x{marks[::-1] * count}"
        assert clean_text(text, ["nfc"]) == unicodedata.normalize("NFC", text) != text
    long = "x" + marks[::-1] * 1000
    assert clean_text(f"e\u0301 {long} e\u0301", ["nfc"]) == f"é {long} é"
    assert clean_text("，" * 100 + "e\u0301", ["nfkc"]) == "," * 100 + "é"


@pytest.mark.parametrize("step", STEPS)
def test_time_grows_with_the_length_alone(step):
    """Each kind of text that is hard for a step takes some microseconds a character; quadratic time takes minutes."""
    length = 30_000
    for unit in [*HARD.split(" "), " ", " \n", "<a ", "- ", '<a b="', '[a](http://b "']:
        start = time.process_time()
        clean_text((unit * length)[:length], [step])
        assert time.process_time() - start < 3, unit


@pytest.mark.realdata
def test_real_text_keeps_its_words(small_corpus):
    """Text without markup comes through whole; of text with some, a small part goes."""
    for path in small_corpus:
        documents = [record["text"] for _, record in read_jsonl(path)]
        cleaned = [clean_text(text, ["html", "urls", "nfc", "whitespace"]) for text in documents]
        assert sum(map(len, cleaned)) > 0.97 * sum(map(len, documents)), path
        if path.stem in ("en_books", "zh_classics", "zh_wiki", "zh_law"):
            assert list(map(letters, cleaned)) == [letters(unicodedata.normalize("NFC", text)) for text in documents]


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
