"""Text of a growing answer: whole characters, stop texts across tokens, and why it ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import Tokenizer
from seedbed.serve.answer import Answer
from seedbed.serve.options import Options

TEXT = "a 中文 b\U0001f600 c\U0001f468\u200d\U0001f469\u200d\U0001f467 é e\u0301 end"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Of bytes and a few merges, so that a character is several tokens."""
    return train_tokenizer(["the small stone, the small river"], 270, tmp_path_factory.mktemp("bytes") / "t")


def answer(tokenizer: Tokenizer, room: int = 10_000, **options) -> Answer:
    return Answer(tokenizer, Options(**{"max_new_tokens": 10_000, **options}), {tokenizer.eos_id}, room)


def write(answer: Answer, ids: list[int]) -> list[str]:
    """The parts of text that are given out, until it ends."""
    parts = []
    for token in ids:
        parts.append(answer.add(token))
        if answer.finish is not None:
            break
    return parts


def test_no_part_holds_half_a_character(tokenizer):
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT) + 10
    written = answer(tokenizer)
    parts = write(written, [*ids, tokenizer.eos_id])
    assert "".join(parts) == written.text == TEXT
    assert "\ufffd" not in "".join(parts)
    assert parts.count("") > 10
    assert (written.finish, written.ids) == ("stop", [*ids, tokenizer.eos_id])


@given(st.lists(st.integers(0, 269), max_size=40))
def test_any_ids_give_the_text_of_all_of_them(tokenizer, ids):
    ids = [i for i in ids if i != tokenizer.eos_id]
    written = answer(tokenizer)
    parts = write(written, [*ids, tokenizer.eos_id])
    assert "".join(parts) == written.text == tokenizer.decode(ids)


def test_an_answer_that_ends_inside_a_character_shows_it(tokenizer):
    ids = tokenizer.encode("ab中")[:-1]
    written = answer(tokenizer, max_new_tokens=len(ids))
    assert write(written, ids) == ["a", "b", "", "\ufffd"]
    assert (written.text, written.finish) == (tokenizer.decode(ids), "length")


@given(
    st.text(alphabet="ab\n中", max_size=30), st.lists(st.text(alphabet="ab\n中", min_size=1, max_size=4), max_size=3)
)
def test_stop_texts_cut_where_the_first_one_begins(tokenizer, text, stops):
    """However the text lies in tokens: each byte of it is one."""
    ids = tokenizer.encode(text)
    written = answer(tokenizer, stop=tuple(stops))
    parts = write(written, [*ids, tokenizer.eos_id])
    first = next((end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)), None)
    expected = text if first is None else text[: min(p for s in stops if (p := text[:first].find(s)) >= 0)]
    assert "".join(parts) == written.text == expected
    assert written.finish == "stop"
    if first is None:
        assert written.ids == [*ids, tokenizer.eos_id]
    else:
        assert tokenizer.decode(written.ids) == text[:first]


def test_the_beginning_of_a_stop_text_is_held_back_until_it_is_none(tokenizer):
    written = answer(tokenizer, stop=("\n\n", "###"))
    assert write(written, tokenizer.encode("a\nb##c")) == ["a", "", "\nb", "", "", "##c"]
    assert written.finish is None


def test_what_was_held_back_comes_at_the_end(tokenizer):
    written = answer(tokenizer, stop=("##",), max_new_tokens=2)
    assert write(written, tokenizer.encode("a#")) == ["a", "#"]
    assert (written.text, written.finish) == ("a#", "length")


@pytest.mark.parametrize(("room", "asked", "finish"), [(3, 9, "context"), (9, 3, "length"), (3, 3, "length")])
def test_the_reason_is_the_bound_that_was_met(tokenizer, room, asked, finish):
    written = answer(tokenizer, room, max_new_tokens=asked)
    write(written, tokenizer.encode("abcdefg"))
    assert (len(written.ids), written.text, written.finish) == (3, "abc", finish)


def test_each_of_several_end_tokens_ends_it(tokenizer):
    ids = tokenizer.encode("xyz")
    written = Answer(tokenizer, Options(), {tokenizer.eos_id, ids[1]}, 100)
    write(written, ids)
    assert (written.text, written.finish, written.ids) == ("x", "stop", ids[:2])
