import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.document import text_hash
from seedbed.data.holdout import held_out


def hashes(texts):
    """[n, 16] uint8."""
    return np.frombuffer(b"".join(map(text_hash, texts)), np.uint8).reshape(-1, 16)


def place(text):
    return (int.from_bytes(text_hash(text)[:8]) >> 11) / 2**53


def sides(texts, fraction, fixed=None):
    """Text -> held out, after checking that copies which the source did not decide are together."""
    fixed = np.full(len(texts), -1, np.int8) if fixed is None else np.array(fixed, np.int8)
    held = held_out(hashes(texts), fraction, fixed)
    assert held.dtype == bool and held.shape == (len(texts),)
    assert all(held[i] == bool(side) for i, side in enumerate(fixed) if side >= 0)
    found = {}
    for i, text in enumerate(texts):
        if fixed[i] < 0:
            assert found.setdefault(text, held[i]) == held[i]
    return found, held


def test_held_out_texts_are_pinned():
    """Held-out sets must not move between releases."""
    texts = [f"text {i}" for i in range(40)]
    assert np.flatnonzero(held_out(hashes(texts), 0.1, np.full(40, -1, np.int8))).tolist() == [2, 3, 6, 18, 33, 38]
    assert place("a") == 0.2537936105758485
    assert place("文:1") == 0.2845114476222599


WORDS = st.lists(st.text("ab文\0", max_size=3), min_size=1, max_size=12)
FRACTIONS = st.floats(0.001, 0.999)


@given(WORDS, FRACTIONS)
def test_the_place_decides_and_no_side_is_empty(texts, fraction):
    found, _ = sides(texts, fraction)
    natural = {text: place(text) < fraction for text in texts}
    moved = [text for text in natural if found[text] != natural[text]]
    if len(natural) == 1:
        assert not found[texts[0]]
    elif len(set(natural.values())) == 2:
        assert not moved
    else:
        assert moved == [max(natural, key=place) if natural[texts[0]] else min(natural, key=place)]


@given(WORDS, FRACTIONS | st.just(0.0), st.data())
def test_copies_follow_the_source(texts, fraction, data):
    fixed = data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=len(texts), max_size=len(texts)))
    found, held = sides(texts, fraction, fixed)
    decided = {side: {text for text, own in zip(texts, fixed, strict=True) if own == side} for side in (0, 1)}
    for text, side in found.items():
        if text in decided[1]:
            assert side
        elif text in decided[0] or fraction == 0:
            assert not side
    if fraction > 0 and len(set(texts)) > 1 and set(found) - decided[0] - decided[1]:
        assert held.any() and not held.all()


def test_copies_of_what_the_source_decided_fill_no_side():
    first, second, third = sorted("abc", key=place)
    texts, fixed = [first, first, second, third], [0, -1, -1, -1]
    assert sides(texts, 1e-9, fixed)[1].tolist() == [False, False, True, False]
    assert sides([first, first], 1e-9, [0, -1])[1].tolist() == [False, False]
    assert sides([first, first], 0.999, [0, -1])[1].tolist() == [False, False]
    assert sides([third, third], 0.0, [1, -1])[1].tolist() == [True, True]
    texts, fixed = [third, third, second, first], [1, -1, -1, -1]
    assert sides(texts, 0.999, fixed)[1].tolist() == [True, True, False, True]


@given(WORDS, WORDS, FRACTIONS)
def test_the_rest_of_the_corpus_makes_no_difference(texts, more, fraction):
    both = ["trains", "is held out"]  # neither side has to be filled
    small = sides([*texts, *both], fraction, [-1] * len(texts) + [0, 1])[0]
    large = sides([*more, *both, *texts], fraction, [-1] * len(more) + [0, 1] + [-1] * len(texts))[0]
    assert small == {text: large[text] for text in texts}


@given(WORDS)
def test_fraction_zero_holds_nothing_out(texts):
    assert not any(sides(texts, 0.0)[1])


def test_the_dtype_of_hashes_makes_no_difference():
    given_as = hashes([str(i) for i in range(100)])
    fixed = np.full(100, -1, np.int8)
    expected = held_out(given_as, 0.3, fixed).tolist()
    assert sum(expected) > 10
    for dtype in ("V16", "<u8", ">u8"):
        assert held_out(np.frombuffer(given_as.tobytes(), dtype).reshape(100, -1), 0.3, fixed).tolist() == expected
    rows = np.zeros(100, [("hash", "V16"), ("size", "<i4")])  # a column of a table, not in one piece
    rows["hash"] = given_as.view("V16")[:, 0]
    assert held_out(rows["hash"], 0.3, fixed).tolist() == expected
    assert held_out(given_as[:0], 0.3, fixed[:0]).shape == (0,)


def test_share_of_texts_is_near_the_fraction():
    assert 850 < sides([str(i) for i in range(20_000)], 0.05)[1].sum() < 1150
