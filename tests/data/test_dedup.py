import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from near_pairs import edited, grams, random_text, similarity

from seedbed.data import dedup, lsh
from seedbed.data.dedup import Alarm, Removal, alarms, exact_duplicates, near_duplicates
from seedbed.data.minhash import signatures
from seedbed.data.sections import NearDuplicates
from seedbed.data.sketch import most_unequal

NEAR = NearDuplicates()


def find(texts, near=NEAR, alive=None, ends=()) -> list[Removal]:
    """Near copies among texts, signed in pieces that end at ``ends``."""
    rows = signatures(texts, near.ngram, near.permutations)
    alive = np.ones(len(texts), bool) if alive is None else np.array(alive, bool)
    return near_duplicates(np.split(rows, sorted(ends)), alive, texts.__getitem__, near, lambda _: None)


def pairs(removals) -> list[tuple[int, int]]:
    return [(removal.document, removal.kept) for removal in removals]


def by_all_pairs(texts, near=NEAR) -> list[tuple[int, int]]:
    """Keep first, by comparing each document with all kept ones that it shares a band with."""
    sets = [grams(text) for text in texts]
    rows = signatures(texts, near.ngram, near.permutations)
    bands = rows[:, : near.bands * near.rows].reshape(-1, near.bands, near.rows)
    kept: list[int] = []
    removed = []
    for i in range(len(texts)):
        for j in kept:
            both = len(sets[i] & sets[j])
            similar = both / (len(sets[i]) + len(sets[j]) - both) >= near.threshold
            if similar and (bands[i] == bands[j]).all(axis=1).any():
                removed.append((i, j))
                break
        else:
            kept.append(i)
    return removed


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_exact_copies_point_to_the_first(hashes):
    first = exact_duplicates(np.array(hashes, np.uint64).reshape(-1, 2))
    assert first.dtype == np.int64
    assert first.tolist() == [hashes.index(item) for item in hashes]


def family(rng, count, chinese=False):
    """Documents of which many are edited copies of earlier ones, in chains, at all similarities."""
    texts = [random_text(rng, 60, chinese)]
    while len(texts) < count:
        low = rng.choice([0.3, 0.55, 0.65, 0.7, 0.75, 0.9])
        copy = edited(rng.choice(texts), low, low + 0.1, rng) if rng.random() < 0.6 else random_text(rng, 60, chinese)
        texts += [copy] if copy else []
    return texts


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


@pytest.mark.parametrize("permutations, threshold", [(16, 0.3), (128, 0.7), (128, 0.95), (1024, 0.7), (1024, 0.99)])
def test_estimates_rule_out_no_pair_at_the_threshold(permutations, threshold):
    least = permutations - most_unequal(permutations, threshold)
    likely = threshold + (1 - threshold) / 16  # entries of a sketch agree by accident, too

    def below(limit: int) -> float:
        logs = (
            math.lgamma(permutations + 1) - math.lgamma(k + 1) - math.lgamma(permutations - k + 1)
            + k * math.log(likely) + (permutations - k) * math.log1p(-likely)
            for k in range(limit)
        )  # fmt: skip
        return sum(map(math.exp, logs))

    assert below(least) <= 3e-7 < below(least + 1)
    assert most_unequal(permutations, 1.0) == 0


def test_a_large_cluster_is_compared_with_the_one_that_stays(monkeypatch):
    """5,000 copies of one text make 12 million pairs."""
    base = random_text(random.Random(1), 100)
    texts = [f"{base[: i % 50]}{i:04d}{base[i % 50 :]}" for i in range(5000)]
    compared, sketched = [], []
    monkeypatch.setattr(dedup, "jaccard", lambda a, b, exact=dedup.jaccard: compared.append(0) or exact(a, b))
    monkeypatch.setattr(lsh, "unequal", lambda a, b, by=lsh.unequal: sketched.append(len(a)) or by(a, b))
    assert pairs(find(texts)) == [(i, 0) for i in range(1, 5000)]
    assert len(compared) == 4999
    assert sum(sketched) < 100 * 5000  # half of those of one look, and the one that stays in each of 25 bands


def test_shared_boilerplate_is_ruled_out_by_estimates(monkeypatch):
    """Half of each document is the same, so that most pairs meet in a bucket."""
    rng = random.Random(1)
    base = random_text(rng, 100)
    texts = [base + random_text(rng, 100) for _ in range(200)]
    compared = []
    monkeypatch.setattr(dedup, "_MANY", 1)
    monkeypatch.setattr(dedup, "jaccard", lambda a, b, exact=dedup.jaccard: compared.append(0) or exact(a, b))
    assert 0.4 < similarity(*texts[:2]) < 0.6
    assert find(texts) == []
    assert len(compared) < 20  # of 19,900 pairs
    crowded = NearDuplicates(bands=1, rows=1)
    assert pairs(find(texts * 2, crowded)) == [(200 + i, i) for i in range(200)]


def test_texts_of_pairs_just_under_the_threshold_are_read_once():
    """Much of each document is the same: estimates rule few pairs out."""
    rng = random.Random(1)
    base = random_text(rng, 150)
    texts = [base + random_text(rng, 75) for _ in range(200)]
    read = []
    rows = signatures(texts, 3, 128)
    found = near_duplicates(
        [rows], np.ones(200, bool), lambda i: read.append(i) or texts[i], NearDuplicates(), lambda _: None
    )
    assert pairs(found) == by_all_pairs(texts)
    assert len(found) < 100
    assert len(read) <= 2 * 200  # for a sharper signature, for its n-grams


def test_n_grams_are_held_up_to_so_many_bytes():
    made = []
    held = dedup._Held(lambda size: made.append(size) or np.zeros(size, np.uint8), 100)
    for size in [40, 50, 40, 30, 40, 50, 101, 40]:
        assert len(held(size)) == size
    assert made == [40, 50, 30, 50, 101, 40]  # 30 takes the place of 50, which was asked for before 40; 101 of all


def test_nothing_held_makes_no_difference(monkeypatch):
    monkeypatch.setattr(dedup, "_LEAST_HELD", 0)
    monkeypatch.setattr(dedup, "_HELD_BYTES", 1)
    few = FAMILY[:40]
    assert pairs(find(few)) == by_all_pairs(few)


def test_sources_that_lose_too_much():
    removed = np.array([True, True, False, True, False, False, False])
    source = np.array([0, 0, 0, 2, 2, 3, 3])
    assert alarms(removed, source, 0.5) == [Alarm(0, 2, 3)]
    assert alarms(removed, source, 0.4) == [Alarm(0, 2, 3), Alarm(2, 1, 2)]
    assert alarms(removed, source, 0.7) == []
    assert alarms(removed[:0], source[:0], 0.5) == []
