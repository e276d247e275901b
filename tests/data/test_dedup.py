import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_pairs import NEAR, by_all_pairs, edited, family, find, pairs, random_text, similarity

from seedbed.data import dedup, lsh
from seedbed.data.dedup import Alarm, alarms, exact_duplicates
from seedbed.data.minhash import signatures
from seedbed.data.sections import NearDuplicates


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_exact_copies_point_to_the_first(hashes):
    first = exact_duplicates(np.array(hashes, np.uint64).reshape(-1, 2))
    assert first.dtype == np.int64
    assert first.tolist() == [hashes.index(item) for item in hashes]


@pytest.mark.parametrize("many", [1, 64])
@pytest.mark.parametrize("look, meet", [(1, 1), (7, 10), (50, 1 << 16), (128, 1 << 16)])
@pytest.mark.parametrize("seed", range(4))
def test_same_as_all_pairs(seed, look, meet, many, monkeypatch):
    monkeypatch.setattr(dedup, "_MANY", many)
    monkeypatch.setattr(lsh, "_LOOK", look)
    monkeypatch.setattr(lsh, "_MEET", meet)
    monkeypatch.setattr(lsh, "_CHUNK", 100)
    texts = family(random.Random(seed), 120, chinese=seed % 2 == 1)
    expected = by_all_pairs(texts)
    assert len(expected) > 10
    assert pairs(find(texts)) == expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab", min_size=3, max_size=12), max_size=30), st.sampled_from([0.3, 0.5, 0.7, 0.9, 1.0]))
def test_same_as_all_pairs_on_small_sets(texts, threshold):
    near = NearDuplicates(threshold=threshold)
    assert pairs(find(texts, near)) == by_all_pairs(texts, near)


FAMILY = family(random.Random(11), 60)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, 60), max_size=6), st.lists(st.booleans(), min_size=60, max_size=60))
def test_pieces_and_dropped_documents_make_no_difference(ends, alive):
    texts = FAMILY
    assert find(texts, ends=ends) == find(texts)
    index = np.flatnonzero(alive)
    alone = find([texts[i] for i in index])
    assert pairs(find(texts, alive=alive, ends=ends)) == [(index[i], index[j]) for i, j in pairs(alone)]


def recall(originals, low, high, rng, count) -> float:
    """Share of edited copies that is removed; whatever is removed is checked."""
    found = 0
    made = 0
    while made < count:
        text = rng.choice(originals)
        copy = edited(text, low, high, rng)
        if copy is None:
            continue
        made += 1
        removals = find([text, copy])
        found += len(removals)
        for removal in removals:
            assert removal.jaccard == similarity(text, copy) >= 0.7
            rows = signatures([text, copy], 3, 128)
            assert removal.estimate == np.mean(rows[0] == rows[1])
    return found / count


@pytest.mark.parametrize("low, high, least", [(0.8, 0.97, 0.99), (0.72, 0.8, 0.95), (0.6, 0.7, 0.0)])
@pytest.mark.parametrize("chinese", [False, True])
def test_recall(low, high, least, chinese):
    rng = random.Random(5)
    share = recall([random_text(rng, 60, chinese) for _ in range(50)], low, high, rng, 60)
    assert share >= least
    assert share == 0 or low >= 0.7


def corpus_texts(paths) -> list[str]:
    return [json.loads(line)["text"] for path in paths for line in path.read_text("utf-8").splitlines()]


@pytest.mark.realdata
@pytest.mark.parametrize("low, high, least", [(0.8, 0.97, 0.99), (0.72, 0.8, 0.95), (0.6, 0.7, 0.0)])
def test_recall_on_the_corpus(small_corpus, low, high, least):
    rng = random.Random(7)
    originals = [text for text in corpus_texts(small_corpus) if 100 <= len(text) <= 1000]
    share = recall(originals, low, high, rng, 100)
    assert share >= least
    assert share == 0 or low >= 0.7


@pytest.mark.realdata
def test_nothing_dissimilar_is_removed_from_the_corpus(small_corpus):
    rng = random.Random(3)
    texts = rng.sample(corpus_texts(small_corpus), 300)
    copies = [edited(text, 0.6, 0.8, rng) for text in texts if len(text) < 500]
    texts += [copy for copy in copies if copy]
    removals = find(texts)
    assert len(removals) > 20
    gone = {removal.document for removal in removals}
    for removal in removals:
        assert removal.kept not in gone
        assert removal.kept < removal.document
        assert removal.jaccard == similarity(texts[removal.document], texts[removal.kept]) >= NEAR.threshold
    assert pairs(removals) == by_all_pairs(texts)


def test_a_chain_is_compared_with_kept_documents_only():
    characters = "".join(map(chr, range(0x4E00, 0x5200)))
    a, b, c = (characters[start : start + 500] for start in (0, 60, 120))
    assert similarity(a, b) > 0.75 < similarity(b, c)
    assert similarity(a, c) < 0.7
    assert pairs(find([a, b, c])) == [(1, 0)]
    assert pairs(find([b, a, c])) == [(1, 0), (2, 0)]
    fillers = [chr(0xAC00 + i) * 3 for i in range(299)]
    assert pairs(find([*fillers[:5], a, *fillers[5:], c, b])) == [(301, 5)]  # near to both, the first is named


def test_each_is_removed_for_the_kept_one():
    text = random_text(random.Random(1))
    near = text[:-3] + "xyz"
    far = text[: len(text) * 3 // 5] + random_text(random.Random(2))[: len(text) * 2 // 5]
    assert similarity(far, text) < 0.7
    assert pairs(find([far, text, "other", near, text])) == [(3, 1), (4, 1)]


def test_empty_short_and_identical_texts():
    assert pairs(find(["", "a", "", "ab", "a", "ab", "abc", "abc"])) == [(2, 0), (4, 1), (5, 3), (7, 6)]
    assert find([]) == []
    assert find(["one"]) == []
    assert find(["one", "one"], alive=[False, True]) == []
    assert find(["one", "one"], alive=[False, False]) == []


def test_sources_that_lose_too_much():
    removed = np.array([True, True, False, True, False, False, False])
    source = np.array([0, 0, 0, 2, 2, 3, 3])
    assert alarms(removed, source, 0.5) == [Alarm(0, 2, 3)]
    assert alarms(removed, source, 0.4) == [Alarm(0, 2, 3), Alarm(2, 1, 2)]
    assert alarms(removed, source, 0.7) == []
    assert alarms(removed[:0], source[:0], 0.5) == []
