import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data import minhash
from seedbed.data.minhash import SIGNATURE_VERSION, folded, jaccard, jaccard_bound, shingles, signatures

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text("ab", max_size=30)
ngrams = st.integers(1, 3)


@given(texts, ngrams)
def test_shingles_are_the_set_of_n_grams(text, ngram):
    found = shingles(text, ngram)
    assert found.dtype == np.uint64
    assert (found[1:] > found[:-1]).all()
    text = text.ljust(ngram, "\U0010ffff")
    expected = {text[i : i + ngram] for i in range(len(text) - ngram + 1)}
    digits = [[int(number) >> 21 * place & 0x1FFFFF for place in reversed(range(ngram))] for number in found]
    assert {"".join(map(chr, number)) for number in digits} == expected
    assert len(found) == len(expected)


@given(st.text("abc", min_size=3, max_size=12), st.text("abc", min_size=3, max_size=12), ngrams)
def test_jaccard_is_that_of_the_sets(a, b, ngram):
    a_set, b_set = ({text[i : i + ngram] for i in range(len(text) - ngram + 1)} for text in (a, b))
    assert jaccard(shingles(a, ngram), shingles(b, ngram)) == len(a_set & b_set) / len(a_set | b_set)


@given(texts, texts, ngrams)
def test_no_similarity_is_over_its_bound(a, b, ngram):
    a_set, b_set = shingles(a, ngram), shingles(b, ngram)
    assert jaccard(a_set, b_set) <= jaccard_bound(folded(a_set))(folded(b_set)) <= 1
    assert jaccard_bound(folded(a_set))(folded(a_set)) == 1


@pytest.mark.parametrize("size", [30, 1000, 2500, 30_000])
def test_a_bound_is_close(size):
    rng = np.random.default_rng(size)
    a, b = (shingles("".join(map(chr, rng.integers(0x4E00, 0x4E00 + 3000, size))), 3) for _ in range(2))
    union = np.union1d(a, b)
    for one, other in [(a, union), (union, a), (a, b)]:  # 2,500 are folded to 16 bits, their union to 32
        assert jaccard(one, other) <= jaccard_bound(folded(one))(folded(other)) < jaccard(one, other) + 0.03


@given(st.lists(texts, max_size=150), ngrams)
def test_a_signature_depends_on_its_text_alone(many, ngram):
    together = signatures(many, ngram, 32)
    assert together.shape == (len(many), 32)
    assert together.dtype == np.uint32
    for text, row in zip(many, together, strict=True):
        assert (signatures([text], ngram, 32)[0] == row).all()


def test_a_signature_is_of_the_set():
    first, longer, other = signatures(["abcd" * 20, "abcd" * 500, "wxyz" * 20], 3, 128)
    assert (first == longer).all()
    assert (first != other).all()


def test_long_and_short_texts_share_batches():
    many = ["x" * 250_000, "", "ab", "y" * 99_999, "z" * 2, *["short text"] * 200]
    together = signatures(many, 3, 128)
    assert all((signatures([text], 3, 128)[0] == row).all() for text, row in zip(many, together, strict=True))


def test_no_call_is_given_so_many_texts_that_rensa_starts_threads(monkeypatch):
    class Spy:
        @staticmethod
        def digest_matrix_from_flat_token_hashes(grams, offsets, *rest):
            sizes.append(len(offsets) - 1)
            return minhash_of.digest_matrix_from_flat_token_hashes(grams, offsets, *rest)

    minhash_of, sizes = minhash.RMinHash, []
    monkeypatch.setattr(minhash, "RMinHash", Spy)
    signatures(["short"] * 1000, 3, 128)
    assert sum(sizes) == 1000
    assert max(sizes) <= 64  # it does from 256


def test_signatures_are_the_same_everywhere():
    """Where this fails, signatures have changed: SIGNATURE_VERSION has to, too."""
    numbers = (pow(7, i, 65537) for i in range(65536 * 3 // 2))  # long enough for each way rensa may take
    text = "".join(chr(0x4E00 + number % 20000) for number in numbers)
    rows = signatures([text, text[:1000], text[:100], text[:10], "ab", ""], 3, 128)
    found = hashlib.blake2b(rows.astype("<u4").tobytes(), digest_size=16).hexdigest()
    assert (SIGNATURE_VERSION, found) == ("rensa 2", "0034283779f843b67bba0ddf2e0b4b33")


@pytest.mark.parametrize("size", [10, 30, 100, 1000])
def test_entries_agree_as_often_as_sets_are_similar(size):
    """Unbiased, spread no wider than independent hashes: else bands and limits would not have the recall they claim."""
    rng = np.random.default_rng(size)
    deviations = []
    while len(deviations) < 300:
        codes = rng.integers(0x4E00, 0x4E00 + 3000, size)
        changed = np.where(rng.random(size) < 0.07, rng.integers(0x4E00, 0x4E00 + 3000, size), codes)
        a, b = ("".join(map(chr, text)) for text in (codes, changed))
        similarity = jaccard(shingles(a, 3), shingles(b, 3))
        if 0.5 < similarity < 0.95:
            first, second = signatures([a, b], 3, 128)
            deviations.append((np.mean(first == second) - similarity) / np.sqrt(similarity * (1 - similarity) / 128))
    assert abs(np.mean(deviations)) < 4 / np.sqrt(300)
    assert np.std(deviations) < 1.15
