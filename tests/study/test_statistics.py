"""Means and differences over seeds: values by hand, tables of t, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seedbed.study.statistics import from_zero, holm, mean_interval, paired, per_doubling

T_975 = {1: 12.7062, 2: 4.3027, 3: 3.1824}  # from printed tables


def test_interval_by_hand():
    found = mean_interval([1.0, 2.0, 3.0])
    half = T_975[2] / math.sqrt(3)  # the standard deviation is 1
    assert (found.mean, found.std, found.n) == (2, 1, 3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), abs=1e-4)


def test_difference_by_hand():
    found = paired([3.0, 3.1, 3.3, 3.2], [2.9, 3.1, 3.1, 3.1])  # -0.1, 0, -0.2, -0.1
    half = T_975[3] * math.sqrt(0.02 / 3) / 2
    assert (found.mean, found.std) == pytest.approx((-0.1, math.sqrt(0.02 / 3)))
    assert (found.low, found.high) == pytest.approx((-0.1 - half, -0.1 + half), abs=1e-5)


@given(st.lists(st.tuples(st.floats(1, 5), st.floats(1, 5)), min_size=2, max_size=8))
def test_difference_against_scipy(pairs):
    a, b = zip(*pairs, strict=True)
    found = paired(a, b)
    if found.p is None:
        assert np.ptp(np.subtract(b, a)) < 1e-13
        return
    expected = stats.ttest_rel(b, a)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-6, abs=1e-12)


def test_a_single_seed_has_a_mean_alone():
    one = mean_interval([2.5])
    assert (one.mean, one.std, one.low, one.high, one.n) == (2.5, None, None, None, 1)
    other = paired([2.5], [2.0])
    assert (other.mean, other.std, other.low, other.high, other.p, other.n) == (-0.5, None, None, None, None, 1)


@pytest.mark.parametrize("shift", [0.0, 0.1, 1e-6])
def test_equal_differences_are_no_certainty(shift):
    a = [3.1, 3.2, 3.7]
    found = paired(a, [value + shift for value in a])
    assert found.mean == pytest.approx(shift, abs=1e-15)
    assert (found.std, found.low, found.high, found.p) == (0, None, None, None)


def test_small_differences_are_still_differences():
    assert paired([3.0, 3.0, 3.0], [3.0 + 1e-9, 3.0 + 2e-9, 3.0 + 3e-9]).p == pytest.approx(0.0742, abs=1e-3)


def test_what_has_no_mean():
    for values in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(ValueError, match="no mean of"):
            mean_interval(values)
        with pytest.raises(ValueError, match="no mean of"):
            from_zero(values)
    with pytest.raises(ValueError, match="2 values paired with 3"):
        paired([1.0, 2.0], [1.0, 2.0, 3.0])


def test_holm_by_hand():
    # Sorted 0.01, 0.03, 0.04: 3 * 0.01, 2 * 0.03, then 1 * 0.04, which may not be below the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_its_definition_does(p):
    # Step down from the smallest: reject while p_(i) <= 0.05 / (m - i), stop at the first that is not.
    order = sorted(range(len(p)), key=lambda i: p[i])
    rejected = set()
    for rank, i in enumerate(order):
        if p[i] * (len(p) - rank) > 0.05:
            break
        rejected.add(i)
    assert {i for i, value in enumerate(holm(p)) if value <= 0.05} == rejected


def test_changes_with_a_doubling():
    x = [1.0, 2.0, 4.0]
    found = per_doubling(x, [[1.0, 2.0, 3.0], [0.0, 2.0, 4.0], [5.0, 8.0, 11.0]])  # slopes 1, 2, 3
    assert (found.mean, found.std, found.n) == pytest.approx((2, 1, 3))
    assert found.p == pytest.approx(stats.ttest_1samp([1, 2, 3], 0).pvalue)
    for bad in ([2.0, 2.0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="no slope"):
            per_doubling(bad, [[1.0, 2.0]])
