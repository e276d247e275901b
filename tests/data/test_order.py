"""The order of training: a bijection that looks random, is the same everywhere, and costs what is asked of it."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.data.order import NEWEST, ORDERS, shuffled, sorted_draws

CHI_SQUARE = 5  # standard deviations of the statistic, about normal for many cells: once in millions


def whole(length: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return shuffled(np.arange(length), length, seed, epoch)


def excess(counts: np.ndarray) -> float:
    """How far the chi-square statistic of ``counts``, all expected equal, is above its mean, in standard deviations."""
    expected, freedom = counts.mean(), counts.size - 1
    return (((counts - expected) ** 2).sum() / expected - freedom) / (2 * freedom) ** 0.5


def test_no_release_moves_an_order():
    """A saved position means nothing if its order moves."""
    assert dict(ORDERS) == {1: sorted_draws, 2: shuffled}
    assert NEWEST == 2
    assert whole(10).tolist() == [4, 9, 8, 0, 1, 7, 3, 5, 6, 2]
    assert whole(9).tolist() == [2, 3, 6, 5, 7, 0, 8, 1, 4]
    assert whole(10, epoch=1).tolist() == [1, 6, 5, 9, 0, 4, 7, 2, 8, 3]
    assert whole(10, seed=5).tolist() == [4, 6, 1, 0, 3, 8, 5, 7, 9, 2]
    far = shuffled(np.array([0, 1, 10**12]), 10**12 + 1, 2**63 - 1, 2**40)
    assert far.tolist() == [734122780346, 383679484279, 462709967691]
    assert sorted_draws(np.arange(10), 10, 0, 0).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]
    assert sorted_draws(np.arange(10), 10, 0, 1).tolist() == [5, 3, 7, 8, 2, 4, 1, 0, 6, 9]
    assert sorted_draws(np.array([3, 0]), 10, 5, 0).tolist() == [3, 9]


@pytest.mark.parametrize("order", ORDERS.values())
@given(length=st.integers(1, 300), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**32))
def test_every_epoch_is_a_bijection(order, length, seed, epoch):
    bins = order(np.arange(length), length, seed, epoch)
    assert bins.dtype == np.int64
    assert sorted(bins.tolist()) == list(range(length))


@pytest.mark.parametrize("length", [2**10, 2**13 - 1, 2**13 + 1, 2**16 - 1, 2**16 + 1, 1000**2, 1000**2 + 1])
def test_long_epochs_are_bijections(length):
    assert np.array_equal(np.sort(whole(length, seed=3)), np.arange(length))


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(0, 2**63 - 1), st.lists(st.integers(0, 10**9), max_size=40))
def test_any_part_equals_that_part_of_the_whole(length, seed, places):
    places = np.array(places, dtype=np.int64) % length
    assert np.array_equal(shuffled(places, length, seed, 1), whole(length, seed, 1)[places])


@pytest.mark.parametrize("length", [3, 50, 1000])
def test_each_bin_is_as_likely_at_each_place(length):
    draws = np.array([whole(length, seed, epoch) for seed in range(20) for epoch in range(100)])  # [2000, length]
    for place in {0, 1, length // 2, length - 1}:
        assert excess(np.bincount(draws[:, place], minlength=length)) < CHI_SQUARE
    steps = (draws[:, 1] - draws[:, 0]) % length
    assert excess(np.bincount(steps, minlength=length)[1:]) < CHI_SQUARE


def test_neighbours_part_and_epochs_have_nothing_in_common():
    length = 10**6
    first, second, other = whole(length), whole(length, epoch=1), whole(length, seed=1)
    places = np.arange(length)
    for pair in ((places, first), (first, second), (first, other), (first[:-1], first[1:])):
        assert excess(np.histogram2d(*pair, bins=100, range=[[0, length]] * 2)[0]) < CHI_SQUARE
        assert abs(np.corrcoef(*pair)[0, 1]) < 5e-3
        assert (pair[0] == pair[1]).sum() < 15  # 1 expected
    assert (np.abs(np.diff(first)) == 1).sum() < 20  # 2 expected


def test_a_part_costs_its_own_memory():
    tracemalloc.start()
    shuffled(np.arange(1000), 10**12, 0, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
