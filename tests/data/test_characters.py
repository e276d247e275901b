import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.characters import Characters, repeated_share


def share_by_hand(items: list[int], n: int) -> float:
    seen, covered = set(), set()
    for start in range(len(items) - n + 1):
        gram = tuple(items[start : start + n])
        if gram in seen:
            covered.update(range(start, start + n))
        seen.add(gram)
    return len(covered) / len(items) if items else 0.0


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 20))
def test_share_is_that_of_the_definition(items, n):
    assert repeated_share(np.array(items, dtype=np.uint32), n) == pytest.approx(share_by_hand(items, n), abs=1e-12)


def test_share_of_a_long_text_is_that_of_the_definition():
    draw = random.Random(1)
    items = [draw.randrange(40) for _ in range(20_000)]
    assert 0.1 < share_by_hand(items, 3) < 0.9
    assert repeated_share(np.array(items, dtype=np.uint32), 3) == pytest.approx(share_by_hand(items, 3))


def test_kinds():
    text = "Aé文々я1¼ \n\u3000,。$😀\U000e0001\U0010ffffx\u0301𠀀"
    counts = {"latin": 3, "han": 3, "other": 1, "digit": 2, "space": 3, "symbol": 6, "mark": 1}
    assert Characters(text).counts == counts
    assert Characters("").counts == dict.fromkeys(counts, 0)


def words_by_hand(text: str) -> list[str]:
    words = [""]
    for char in text:
        if unicodedata.name(char, "").startswith("CJK UNIFIED"):
            words += [char, ""]
        elif unicodedata.category(char)[0] in "LMN":
            words[-1] += char
        else:
            words.append("")
    return [word for word in words if word]


@given(st.text("ab1é文字,. _\u0301я", max_size=60))
def test_words_are_equal_where_their_hashes_are(text):
    words, hashes = words_by_hand(text), Characters(text).words().tolist()
    assert len(hashes) == len(words)
    assert len(set(hashes)) == len(set(words)) == len(set(zip(words, hashes, strict=True)))


def test_words_of_the_same_letters_differ():
    assert len(set(Characters("abc acb bac bca cab cba ab ba a b").words().tolist())) == 10
