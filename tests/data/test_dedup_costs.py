"""How many comparisons, texts and bytes the search for near copies takes."""

import random
import tracemalloc

import numpy as np
from near_pairs import NEAR, by_all_pairs, family, find, pairs, random_text, similarity

from seedbed.data import dedup, lsh
from seedbed.data.dedup import near_duplicates
from seedbed.data.minhash import signatures
from seedbed.data.sections import NearDuplicates


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
    held = dedup._Held(lambda size: made.append(size) or np.zeros(1000 * size, np.uint8), 100_000)
    for size in [40, 50, 40, 30, 40, 50, 101, 40]:
        assert len(held(size)) == 1000 * size
    assert made == [40, 50, 30, 50, 101, 40]  # 30 takes the place of 50, which was asked for before 40; 101 of all


def test_small_arrays_count_for_what_they_take():
    made = []
    held = dedup._Held(lambda key: made.append(key) or np.zeros(1, np.uint8), 100_000)
    for key in [*range(1000), 0]:
        held(key)
    assert made == [*range(1000), 0]  # a thousand of them take more than 100 bytes each


def test_nothing_held_makes_no_difference(monkeypatch):
    monkeypatch.setattr(dedup, "_LEAST_HELD", 0)
    monkeypatch.setattr(dedup, "_HELD_BYTES", 1)
    few = family(random.Random(11), 40)
    assert pairs(find(few)) == by_all_pairs(few)


def test_memory_is_a_few_hundred_bytes_a_document():
    """Of documents that nearly all share buckets, and are alike in none."""

    def peak(documents: int) -> int:
        rows = np.random.default_rng(0).integers(0, 8, (documents, 128), np.uint32)
        tracemalloc.start()
        assert near_duplicates([rows], np.ones(documents, bool), str, NEAR, lambda _: None) == []
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert 200 < (peak(40_000) - peak(20_000)) / 20_000 < 350
