"""Learning curves: bands, first crossings and slopes, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.study.curves import band, end_slope, ends_to_loss, tokens_ratio, tokens_to_loss

A = [(0, 9.0), (100, 5.0), (200, 4.0), (400, 3.0)]


def test_band_of_the_same_counts_is_not_interpolated():
    found = band([[(0, 9.0), (10, 4.0)], [(0, 9.2), (10, 4.4)]])
    assert found.tokens == (0, 10)
    assert not found.interpolated
    assert [one.mean for one in found.intervals] == pytest.approx([9.1, 4.2])
    half = 12.7062 * 0.4 / math.sqrt(2) / math.sqrt(2)
    assert found.intervals[1].high == pytest.approx(4.2 + half, abs=1e-4)


def test_band_of_different_counts():
    # The first is a line in the logarithm from 5 at 1 to 3 at 4, so 4 at 2; 8 is beyond its end, and 0 has none.
    found = band([[(0, 9.0), (1, 5.0), (4, 3.0)], [(0, 9.0), (2, 4.5), (4, 3.5), (8, 1.0)]])
    assert found.interpolated
    assert found.tokens == (2, 4)
    assert [one.mean for one in found.intervals] == pytest.approx([4.25, 3.25])


def test_bands_that_are_none():
    with pytest.raises(ValueError, match="no curves"):
        band([])
    with pytest.raises(ValueError, match="no token count in common: one starts at 4, one ends at 2"):
        band([[(1, 5.0), (2, 4.0)], [(4, 5.0), (8, 4.0)]])
    for bad in ([], [(1, 2.0, 3.0)], [(1, math.nan)], [(0, math.inf), (1, 2.0)]):
        with pytest.raises(ValueError, match="finite"):
            band([bad])
    for bad in ([(2, 5.0), (1, 4.0)], [(1, 5.0), (1, 4.0)], [(-1, 5.0), (1, 4.0)], [(0, 5.0)]):
        with pytest.raises(ValueError, match="the tokens of a curve rise"):
            band([bad])


def test_tokens_to_loss_by_hand():
    found = tokens_to_loss(A, [(0, 9.0), (100, 4.0), (400, 2.0)])  # 3 lies halfway from 100 to 400 in logarithms
    assert (found.target, found.tokens_a, found.tokens_b, found.ratio) == pytest.approx((3, 400, 200, 0.5))
    assert found.reason == ""


def test_the_first_crossing_counts():
    found = tokens_to_loss(A, [(100, 4.0), (200, 2.0), (400, 3.5), (800, 1.0)])
    assert found.tokens_b == pytest.approx(100 * 2**0.5)


def test_a_loss_that_rose_again_was_reached_before():
    up = [(100, 5.0), (200, 3.0), (400, 4.0)]
    found = tokens_to_loss(up, up)
    assert (found.target, found.ratio) == (4, 1)
    assert found.tokens_a == pytest.approx(100 * 2**0.5)


def test_a_run_that_only_rose_reaches_its_final_loss_at_its_end():
    found = tokens_to_loss([(100, 3.0), (200, 3.5)], [(100, 4.0), (400, 3.0)])
    assert (found.tokens_a, found.tokens_b) == pytest.approx((200, 200))


def test_what_is_not_reached():
    slow = tokens_to_loss(A, [(100, 5.0), (400, 3.5)])
    assert (slow.tokens_b, slow.ratio) == (None, None)
    assert slow.reason == "lowest loss 3.5 in 400 tokens, above 3"
    slow = tokens_to_loss(A, [(100, 5.0), (16310, 3.5)])
    assert slow.reason == "lowest loss 3.5 in 16,310 tokens, above 3"
    fast = tokens_to_loss(A, [(100, 2.5), (400, 2.0)])
    assert fast.ratio is None
    assert fast.reason == "already at 2.5 at its first point, 100 tokens, below 3"
    assert tokens_to_loss(A, [(100, 3.0), (400, 2.0)]).tokens_b == 100


@given(st.lists(st.floats(1, 9), min_size=2, max_size=9))
def test_a_run_against_itself(losses):
    curve = [(2.0**at, loss) for at, loss in enumerate(losses)]
    found = tokens_to_loss(curve, curve)
    assert found.ratio == pytest.approx(1) or (found.ratio is None and losses[0] < losses[-1])


def test_ratio_over_seeds():
    found = [tokens_to_loss(A, [(100, 4.0), (end, 3.0)]) for end in (100 * math.e, 100 * math.e**2, 100 * math.e**3)]
    ratio = tokens_ratio(found)
    assert ratio.ratio == pytest.approx(math.e**2 / 4)
    half = 4.3027 / math.sqrt(3)
    assert (ratio.low, ratio.high) == pytest.approx((math.e ** (2 - half) / 4, math.e ** (2 + half) / 4), rel=1e-4)
    assert (ratio.n, ratio.reason) == (3, "")


def test_no_mean_over_the_seeds_that_happened_to_reach_it():
    reached, not_reached = tokens_to_loss(A, A), tokens_to_loss(A, [(100, 5.0), (400, 3.5)])
    ratio = tokens_ratio([reached, not_reached, reached])
    assert (ratio.ratio, ratio.low, ratio.p, ratio.n) == (None, None, None, 3)
    assert ratio.reason == "1 of 3 seeds: lowest loss 3.5 in 400 tokens, above 3"
    with pytest.raises(ValueError, match="no mean of"):
        tokens_ratio([])


def test_slope_at_the_end():
    curve = [(2**at, 9.0 if at < 6 else 5 - 0.3 * at) for at in range(7)]
    assert end_slope(curve) is None  # only 32 and 64 lie in the last half
    late = [(tokens, 5 - 0.3 * math.log2(tokens)) for tokens in (50, 80, 100)]
    assert end_slope([(1, 9.0), (49, 9.0), *late]) == pytest.approx(-0.3)


def test_tokens_by_the_ends_of_runs_of_several_budgets():
    slow = [(tokens, 4 * tokens**-0.1) for tokens in (100, 200, 400)]
    fast = [(tokens, 4 * (1.25 * tokens) ** -0.1) for tokens in (100, 200, 400)]
    found = ends_to_loss(slow, fast)  # a power law is a line in logarithms, and so exact
    assert found.target == slow[-1][1]
    assert found.tokens_b == pytest.approx(320)
    assert found.ratio == pytest.approx(0.8)
    behind = ends_to_loss(fast, slow)
    assert behind.ratio is None
    assert behind.reason == "better than the learner's largest budget"
    assert ends_to_loss(slow, slow).ratio == pytest.approx(1)
    with pytest.raises(ValueError, match="take two budgets"):
        ends_to_loss(slow[-1:], fast[-1:])
