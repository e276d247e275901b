"""Gains on the same tokens: values by hand, intervals against SciPy, and what binning does to noise."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from seedbed.measure.gains import (
    LEAST_DOCUMENTS,
    RESAMPLES,
    bootstrap_means,
    difficulty_bins,
    difficulty_slope,
    document_sums,
    probability_gain,
)

LOSSES = st.floats(0, 2000)


def test_probability_gain_by_hand():
    loss_a, loss_b = -np.log([0.2, 0.5, 0.9]), -np.log([0.6, 0.5, 0.1])
    assert probability_gain(loss_a, loss_b) == pytest.approx([0.4 / 0.8, 0, -0.8 / 1.0], abs=1e-12)


def test_probability_gain_where_no_float_holds_the_probabilities():
    assert math.exp(-1000) == 0
    assert probability_gain(np.array([1000.0]), np.array([999.0]))[0] == pytest.approx((math.e - 1) / (math.e + 1))


@given(LOSSES, LOSSES)
def test_exchanged_models_turn_the_sign(loss_a, loss_b):
    there, back = (probability_gain(np.array([x]), np.array([y]))[0] for x, y in ((loss_a, loss_b), (loss_b, loss_a)))
    assert there == -back
    assert -1 <= there <= 1


def test_bins_by_hand():
    assert difficulty_bins(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), 2).tolist() == [1, 0, 1, 0, 0]
    assert difficulty_bins(np.array([7.0, 7.0, 7.0, 7.0]), 2).tolist() == [0, 0, 1, 1]


@given(st.lists(st.integers(0, 5), min_size=10, max_size=60))
def test_bins_are_ordered_and_of_equal_count(values):
    bins = difficulty_bins(np.array(values, dtype=float), 10)
    sizes = np.bincount(bins, minlength=10)
    assert sizes.max() - sizes.min() <= 1
    by_bin = [np.array(values)[bins == number] for number in range(10)]
    assert all(low.max() <= high.min() for low, high in pairwise(by_bin))


def test_fewer_tokens_than_bins():
    with pytest.raises(ValueError, match="9 tokens for 10 bins"):
        difficulty_bins(np.arange(9.0), 10)


def test_document_sums_by_hand():
    sums = document_sums(
        np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 1, 1]), np.array([0, 2, 2, 2]), (3, 3)
    )  # the third document has no token
    assert sums.tolist() == [[1, 0, 2], [0, 0, 12], [0, 0, 0]]


def test_intervals_are_those_of_scipy():
    rng = np.random.default_rng(0)
    counts = rng.integers(5, 40, (60, 1)).astype(float)
    sums = counts * rng.normal(0.3, 1, (60, 1))
    ours = bootstrap_means(sums, counts, seed=1)
    theirs = bootstrap(
        (sums[:, 0], counts[:, 0]),
        lambda s, c, axis: s.sum(axis) / c.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low[0] == pytest.approx(theirs.low, abs=0.08 * width)
    assert ours.high[0] == pytest.approx(theirs.high, abs=0.08 * width)


def test_documents_are_resampled_not_tokens():
    """A document said ten times over is no more evidence."""
    rng = np.random.default_rng(0)
    sums, counts = rng.normal(0, 5, (30, 2)), np.full((30, 2), 5.0)
    once, tenfold = bootstrap_means(sums, counts, 3), bootstrap_means(10 * sums, 10 * counts, 3)
    assert tenfold.low == pytest.approx(once.low)
    assert tenfold.high == pytest.approx(once.high)
    assert once.high[0] - once.low[0] > 0.3


def test_no_interval_of_few_documents_and_none_wide_of_equal_ones():
    counts = np.zeros((20, 2))
    counts[:, 0] = 3
    counts[: LEAST_DOCUMENTS - 1, 1] = 3
    found = bootstrap_means(0.5 * counts, counts, 0)
    assert found.low[0] == found.high[0] == 0.5
    assert np.isnan([found.low[1], found.high[1]]).all()


def test_a_resample_without_a_group_says_nothing_of_it():
    counts = np.ones((100, 1))
    counts[LEAST_DOCUMENTS:] = 0
    seed = 7  # one of the resamples misses all ten
    rng = np.random.default_rng(seed)
    assert any((rng.integers(100, size=100) >= LEAST_DOCUMENTS).all() for _ in range(RESAMPLES))
    found = bootstrap_means(0.5 * counts, counts, seed)
    assert found.low[0] == found.high[0] == 0.5


def test_the_slope_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    loss_a, loss_b = rng.gamma(2, 1.5, 500), rng.gamma(3, 1, 500)
    slope = np.polyfit((loss_a + loss_b) / 2, loss_a - loss_b, 1)[0]
    assert difficulty_slope(loss_a, loss_b) == pytest.approx(slope)
    assert difficulty_slope(loss_b, loss_a) == pytest.approx(-slope)
    assert difficulty_slope(np.ones(3), np.zeros(3)) == 0


def test_bins_by_both_losses_show_no_gain_that_is_not_there():
    """Two equal models, each with noise of its own: binned by one of them the hard tokens seem to gain."""
    rng = np.random.default_rng(0)
    truth = rng.gamma(2, 1.5, 200_000)
    loss_a, loss_b = truth + rng.normal(0, 1, truth.shape), truth + rng.normal(0, 1, truth.shape)
    gain = loss_a - loss_b

    def means(difficulty):
        bins = difficulty_bins(difficulty, 10)
        return np.bincount(bins, weights=gain) / np.bincount(bins)

    assert np.abs(means((loss_a + loss_b) / 2)).max() < 0.05
    assert means(loss_a)[-1] > 0.3
    assert means(loss_a)[0] < -0.3
