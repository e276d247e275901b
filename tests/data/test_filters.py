import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.filters import make_filter
from seedbed.data.spec import spec_from
from seedbed.errors import InputError
from seedbed.files.jsonl import read_jsonl

PRETRAINING = {
    "char_repetition": {"n": 20, "max_share": 0.7},
    "word_repetition": {"n": 5, "max_share": 0.7},
    "language": {"scripts": ["latin", "han"], "min_share": 0.9},
    "quality": {"max_symbol_share": 0.5, "max_digit_share": 0.4, "max_mean_word": 15},
}


def filters(**fields):
    return make_filter(spec_from({"sources": ["a"], "tokenizer": "t", "filters": fields}, "spec").filters)


def test_no_filter_rejects_nothing():
    check = filters()
    assert [check(text) for text in ("", "a" * 1000, "\n")] == [None] * 3


def test_characters_repeat():
    check = filters(char_repetition={"n": 3, "max_share": 0.5})
    assert check("哈" * 100) == "characters repeat"
    assert check("abcdefabcdef") is None  # exactly half
    assert check("abcdefabcdefabc") == "characters repeat"
    assert check("ab") is None


def test_words_repeat_and_a_han_character_is_a_word():
    check = filters(word_repetition={"n": 2, "max_share": 0.5})
    assert check("buy now, " * 50) == "words repeat"
    assert check("buy now buy now later again") is None
    assert check("买它买它买它") == "words repeat"
    assert check("天地玄黄宇宙洪荒") is None
    assert check("buy it! buy: it? buy it.") == "words repeat"  # punctuation does not count


@pytest.mark.parametrize(
    ("text", "scripts", "kept"),
    [
        ("Plain English, 2 + 2 = 4.", ["latin"], True),
        ("Café naïve Straße", ["latin"], True),
        ("Это русский текст.", ["latin", "han"], False),
        ("Русский text", ["latin"], False),
        ("中文 and English", ["latin", "han"], True),
        ("中文 and English", ["han"], False),
        ("天地玄黄，宇宙洪荒。", ["han"], True),
        ("12345 !!!", ["latin"], False),
    ],
)
def test_scripts(text, scripts, kept):
    reason = filters(language={"scripts": scripts, "min_share": 0.8})(text)
    assert reason == (None if kept else "letters of other scripts")


@pytest.mark.parametrize(
    ("field", "limit", "rejected", "kept", "reason"),
    [
        ("max_symbol_share", 0.3, "a!!b??", "good, text.", "too many symbols"),
        ("max_digit_share", 0.3, "1 2 a b c", "in 1999 they left for the sea", "too many digits"),
        ("min_mean_word", 3, "a b c d", "many words here", "words too short"),
        ("max_mean_word", 10, "aGVsbG8gd29ybGQhIQ", "many words here", "words too long"),
        (
            "min_ended_share",
            0.5,
            "Home\nAbout\n\nContact us.",
            '\n  \n\n\nIt ends.\n"So?"\n他说：“好。”\nmore',
            "lines end no sentence",
        ),
    ],
)
def test_quality(field, limit, rejected, kept, reason):
    check = filters(quality={field: limit})
    assert check(rejected) == reason
    assert check(kept) is None


def test_mean_word_is_not_asked_of_chinese():
    assert filters(quality={"min_mean_word": 3})("设变量 x 和 y 为整数。") is None
    assert (
        filters(quality={"max_mean_word": 5})("使用 initialization 时请注意以下的几个问题和它们各自的解决方法。")
        is None
    )


def test_first_reason_in_the_order_of_the_fields():
    both = {"quality": {"max_digit_share": 0.1}, "char_repetition": {"n": 2, "max_share": 0.1}}
    assert filters(**both)("1" * 100) == "characters repeat"


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert filters(**PRETRAINING)(text) in (
        None, "characters repeat", "words repeat", "letters of other scripts", "too many symbols", "too many digits",
        "words too long",
    )  # fmt: skip


def test_datatrove_rejects_with_its_reason():
    check = filters(datatrove={"RegexFilter": {"regex_exp": "viagra"}, "C4ParagraphFilter": {}})
    assert check("cheap viagra") == "RegexFilter"
    assert check("short") == "C4ParagraphFilter: < 3 paragraphs"
    assert check(("long enough " * 20 + "\n") * 3) is None
    sentences = filters(datatrove={"C4QualityFilter": {"language": "zho", "min_num_sentences": 2}})
    assert sentences("One sentence is here.") == "C4QualityFilter: too_few_sentences"
    assert sentences("The first one is here.\nThe second one follows it.") is None


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("RegexFiltr", {}, "filters.datatrove.RegexFiltr: unknown filter; did you mean 'RegexFilter'?"),
        ("BaseFilter", {}, "C4QualityFilter"),
        ("RegexFilter", {"regex": "a"}, "datatrove.RegexFilter.regex: unknown argument; did you mean 'regex_exp'?"),
        ("RegexFilter", {"regex_exp": "(a"}, "filters.datatrove.RegexFilter: missing )"),
        ("RegexFilter", {}, "missing 1 required positional argument: 'regex_exp'"),
        ("RegexFilter", {"regex_exp": "a", "exclusion_writer": "out"}, "exclusion_writer: unknown argument"),
        ("C4QualityFilter", {"language": "zho", "min_num_sentences": "a"}, "C4QualityFilter: TypeError"),
        ("SamplerFilter", {"rate": 0.5}, "draws by chance"),
        ("LambdaFilter", {}, "takes a function"),
        ("URLFilter", {}, "address"),
    ],
)  # fmt: skip
def test_a_wrong_filter_of_datatrove_is_refused_before_any_text(name, arguments, message):
    with pytest.raises(InputError) as error:
        filters(datatrove={name: arguments})
    assert str(error.value).startswith(f"filters.datatrove.{name}")
    assert message in str(error.value)


def test_an_unknown_filter_is_answered_with_those_there_are():
    with pytest.raises(InputError, match="C4QualityFilter") as error:
        filters(datatrove={"Nonsense": {}})
    assert "SamplerFilter" not in str(error.value)


def test_a_library_that_datatrove_lacks_is_named(monkeypatch):
    from datatrove.utils import _import_utils, word_tokenizers

    _import_utils._is_package_available.cache_clear()
    word_tokenizers.load_word_tokenizer.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    monkeypatch.setattr(_import_utils, "_is_package_available", lambda name: name != "spacy")
    with pytest.raises(InputError, match=r"filters.datatrove.GopherQualityFilter: .*pip install spacy"):
        filters(datatrove={"GopherQualityFilter": {}})


def test_without_datatrove_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datatrove.data", None)
    with pytest.raises(InputError, match=r"pip install 'seedbed\[scale\]'"):
        filters(datatrove={"RegexFilter": {"regex_exp": "a"}})


def test_datatrove_and_torch_are_not_loaded_without_need():
    code = "import sys; from seedbed.data import filters, spec; filters.make_filter(spec.Filters()); "
    code += "sys.exit(bool({'torch', 'datatrove'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def texts(path):
    return [record["text"] for _, record in read_jsonl(path)]


@pytest.mark.realdata
def test_real_text_stays(small_corpus):
    check = filters(**PRETRAINING)
    for path in small_corpus:
        reasons = [check(text) for text in texts(path)]
        assert sum(map(bool, reasons)) <= 0.03 * len(reasons), (path, reasons)


@pytest.mark.realdata
def test_built_spam_goes(small_corpus):
    check = filters(**PRETRAINING)
    for path in small_corpus:
        for text in texts(path)[:20]:
            assert check(text[:60] * 40) in ("characters repeat", "words repeat"), text[:60]
            assert check("".join(chr(0x400 + ord(char) % 64) for char in text)) is not None
            assert check(text[:200] + "＊☆！" * 200) is not None
