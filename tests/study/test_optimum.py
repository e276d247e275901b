"""Optimum of a knob: exact curves, edges, missing bounds, movement with width."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seedbed.study.optimum import movement, optimum
from seedbed.study.statistics import paired

GRID = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


def parabola(value, at):
    return 2.5 + 0.8 * (value - at) ** 2


def losses(*optima, shape=parabola, grid=GRID):
    return {seed: {value: shape(value, at) for value in grid} for seed, at in enumerate(optima)}


@given(st.floats(0.51, 1.24))
def test_an_exact_parabola(at):
    found = optimum(losses(at, at))
    assert found.at == pytest.approx(at)
    assert found.by_seed == pytest.approx([at, at])


def test_an_exact_quartic_and_what_is_near():
    found = optimum(losses(0.8, shape=lambda value, at: (value - at) ** 2 + (value - at) ** 3 + (value - at) ** 4))
    assert found.at == pytest.approx(0.8)
    assert found.points == GRID[:5]
    assert (found.low, found.high, found.reason) == (None, None, "one seed has no interval")


def test_the_interval_by_hand():
    # Parabolas of one curvature c: the slope of seed s at x is 2c (x - at_s), so the interval is that of the mean.
    found = optimum(losses(0.8, 0.85, 0.9))
    half = 4.3027 * 0.05 / math.sqrt(3)
    assert found.at == pytest.approx(0.85)
    assert (found.low, found.high) == pytest.approx((0.85 - half, 0.85 + half), abs=1e-5)
    assert found.by_seed == pytest.approx([0.8, 0.85, 0.9])
    assert found.reason == ""


@pytest.mark.parametrize("spread", np.geomspace(1e-4, 0.03, 12).tolist())
def test_terms_of_rounding_alone_do_not_move_the_bounds(spread):
    half = 4.30265273 * spread / math.sqrt(3)
    for centre in np.linspace(0.6, 1.1, 9).tolist():
        found = optimum(losses(centre - spread, centre, centre + spread))
        assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-5 * half)


def test_the_five_nearest_values():
    assert [optimum(losses(at)).points for at in (0.5, 1.25)] == [GRID[:5], GRID[1:]]


def test_the_interval_is_the_test_inverted():
    rng = np.random.default_rng(1)
    rows = {seed: {value: parabola(value, 0.8) + rng.normal(scale=0.01) for value in GRID} for seed in range(4)}
    found = optimum(rows)
    near = np.array(found.points)
    for bound in (found.low, found.high):
        slopes = [np.polyval(np.polyder(np.polyfit(near, [row[v] for v in near], 4)), bound) for row in rows.values()]
        assert stats.ttest_1samp(slopes, 0).pvalue == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(("at", "edge"), [(0.1, "at 0.25, the first value"), (1.7, "at 1.5, the last value")])
def test_an_edge_is_no_optimum(at, edge):
    found = optimum(losses(at, at))
    assert (found.at, found.low, found.high, found.by_seed) == (None, None, None, ())
    assert found.reason == f"at the edge: the mean loss is lowest {edge}"


def test_losses_that_do_not_bound_the_optimum():
    found = optimum(losses(0.4, 0.8, 1.3))
    assert (found.low, found.high) == (None, None)
    assert found.reason == "the losses do not bound the optimum from below or above"


def test_equal_seeds_are_no_certainty():
    found = optimum(losses(0.8, 0.8, 0.8))
    assert (found.low, found.high, found.reason) == (None, None, "the seeds do not differ")


@pytest.mark.parametrize("grid", [GRID[1:4], GRID[1:5]])
def test_few_values(grid):
    assert optimum(losses(0.8, grid=grid)).at == pytest.approx(0.8)


def test_values_left_out_are_said():
    rows = losses(0.8, 0.8)
    del rows[1][1.5]
    found = optimum(rows)
    assert found.notes == ("values [1.5] left out: not every seed has a loss there",)
    assert found.at == pytest.approx(0.8)


def test_what_has_no_optimum():
    with pytest.raises(ValueError, match="0 seeds share 0 values"):
        optimum({})
    with pytest.raises(ValueError, match="2 seeds share 2 values"):
        optimum({0: {1.0: 2.0, 2.0: 1.0, 3.0: 2.0}, 1: {1.0: 2.0, 2.0: 1.0}})
    with pytest.raises(ValueError, match="not finite"):
        optimum({0: {1.0: 2.0, 2.0: 1.0, 3.0: math.nan}})


def test_movement_by_hand():
    wide = {16: (0.7, 0.72, 0.74), 32: (0.8, 0.83, 0.83), 64: (0.9, 0.93, 0.93)}
    found = movement({width: optimum(losses(*at)) for width, at in wide.items()})
    assert found.widths == (16, 32, 64)
    assert [(pair.narrow, pair.wide) for pair in found.pairs] == [(16, 32), (16, 64), (32, 64)]
    expected = paired(wide[16], wide[64])
    assert found.pairs[1].moved.mean == pytest.approx(expected.mean)
    assert found.pairs[1].moved.p == pytest.approx(expected.p)
    assert found.slope and found.slope.mean == pytest.approx(np.mean([0.2, 0.21, 0.19]) / 2)
    assert found.reason == ""


def test_holm_over_the_pairs():
    wide = {16: (0.7, 0.72, 0.74), 32: (0.8, 0.83, 0.85), 64: (0.9, 0.92, 0.96)}
    pairs = movement({width: optimum(losses(*at)) for width, at in wide.items()}).pairs
    least = min(pairs, key=lambda pair: pair.moved.p or 1)
    assert least.moved.p and least.p_holm == pytest.approx(3 * least.moved.p)


def test_widths_without_a_bounded_optimum_do_not_count():
    good, edge, open_ = optimum(losses(0.8, 0.82)), optimum(losses(1.7, 1.7)), optimum(losses(0.4, 0.8, 1.3))
    found = movement({16: good, 32: edge, 64: open_})
    assert (found.slope, found.pairs, found.widths) == (None, (), (16,))
    assert found.reason == (
        "fewer than two widths have a bounded optimum; 32: at the edge: the mean loss is lowest at 1.5, the last "
        "value; 64: the losses do not bound the optimum from below or above"
    )
    found = movement({16: good, 32: edge, 64: good})
    assert found.slope and (found.slope.mean, found.slope.p) == (pytest.approx(0, abs=1e-12), None)
    assert found.reason.startswith("32: at the edge")


def test_seeds_pair_by_number():
    a = optimum({seed: row for seed, row in losses(0.7, 0.72, 0.74, 0.76).items() if seed != 0})
    b = optimum(losses(0.8, 0.83, 0.83))
    found = movement({16: a, 32: b})
    assert found.pairs[0].moved.n == 2
    assert found.pairs[0].moved.mean == pytest.approx((0.11 + 0.09) / 2)
    c = optimum({seed + 7: row for seed, row in losses(0.8, 0.83, 0.83).items()})
    with pytest.raises(ValueError, match="widths that share no seed"):
        movement({16: b, 32: c})


def test_results_are_json():
    one = optimum(losses(0.7, 0.72, 0.74))
    other = optimum(losses(0.8, 0.83, 0.83))
    assert json.loads(json.dumps(asdict(movement({16: one, 32: other})), allow_nan=False))["widths"] == [16, 32]
    assert json.loads(json.dumps(asdict(one), allow_nan=False))["reason"] == ""
