"""Effective model size: exact curves, what is refused, and what is noted."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.study.effective_size import effective_size

SIZES = (1e5, 2e5, 4e5, 8e5, 1.6e6)


def law(size, gain=0.0, floor=2.5, exponent=0.3):
    """Loss of a model that is as good as one of ``size * (1 + gain)``; 2 nats above the floor at 1e5."""
    return floor + 2 * (size * (1 + gain) / 1e5) ** -exponent


def losses(gain=0.0, seeds=3, sizes=SIZES, shift=0.0, **law_options):
    """Without noise; seeds differ by ``shift`` in their gain."""
    return {seed: {n: law(n, gain + shift * (seed - 1), **law_options) for n in sizes} for seed in range(seeds)}


@settings(deadline=None, max_examples=30)
@given(st.floats(-0.4, 0.9), st.floats(0.1, 3), st.floats(0.1, 1.2))
def test_an_exact_law_is_found(gain, floor, exponent):
    found = effective_size(losses(floor=floor, exponent=exponent), losses(gain, floor=floor, exponent=exponent))
    assert found.method == "fit"
    for fit in found.fits:
        assert (fit.floor, fit.exponent) == pytest.approx((floor, exponent), abs=2e-3)
        assert np.abs(fit.base_left + fit.arm_left).max() < 1e-5
    middle = found.gains[2]
    assert middle.gain == pytest.approx(gain, abs=1e-3)
    assert middle.same_as == pytest.approx(4e5 * (1 + gain), rel=1e-3)


def test_a_fit_over_seeds():
    found = effective_size(losses(), losses(0.5, shift=0.1))
    logs = np.log([1.4, 1.5, 1.6])
    half = 4.3027 * logs.std(ddof=1) / math.sqrt(3)
    assert found.gains[0].gain == pytest.approx(math.exp(logs.mean()) - 1, abs=1e-4)
    assert found.gains[0].low == pytest.approx(math.exp(logs.mean() - half) - 1, abs=1e-3)
    assert found.gains[0].high == pytest.approx(math.exp(logs.mean() + half) - 1, abs=1e-3)
    assert found.gains[0].n == 3
    assert [gain.size for gain in found.gains] == list(SIZES)


def test_nothing_is_extrapolated():
    fit = effective_size(losses(), losses(0.5, shift=0.1)).gains
    assert [gain.gain is None for gain in fit] == [False, False, False, False, True]
    assert fit[-1].reason == "N' would be 2.396e+06, outside the sizes 1e+05 to 1.6e+06"
    worse = effective_size(losses(), losses(-0.3, shift=0.1)).gains
    assert [gain.gain is None for gain in worse] == [True, False, False, False, False]
    few = effective_size(losses(sizes=SIZES[:3]), losses(0.5, sizes=SIZES[:3])).gains
    assert [gain.gain is None for gain in few] == [False, False, True]
    assert few[-1].reason == "3 of 3 seeds: better than the baseline's largest size"
    few = effective_size(losses(sizes=SIZES[:3]), losses(-0.3, sizes=SIZES[:3])).gains
    assert few[0].reason.endswith("worse than the baseline's smallest size")


def test_one_seed_outside_leaves_no_number():
    arm = losses(0.5, sizes=SIZES[:4])
    arm[1][2e5] = 2.6
    gain = effective_size(losses(sizes=SIZES[:4]), arm).gains[1]
    assert gain.gain is None
    assert gain.reason.startswith("1 of 3 seeds: better than")


def test_interpolation_by_hand():
    # Two sizes: halfway in the logarithm of the loss is halfway in that of the size.
    base = {0: {100.0: 4.0, 400.0: 2.0}, 1: {100.0: 4.0, 400.0: 2.0}}
    arm = {0: {100.0: math.sqrt(8), 400.0: 1.9}, 1: {100.0: math.sqrt(8), 400.0: 1.9}}
    found = effective_size(base, arm)
    assert found.method == "interpolation"
    assert found.fits == ()
    assert found.gains[0].gain == pytest.approx(1)
    assert found.gains[0].p is None  # equal seeds are no certainty
    assert any("interpolated: 2 sizes" in note for note in found.notes)
    assert any("too high" in note for note in found.notes)


def test_three_sizes_bend():
    # A parabola in logarithms is met exactly: ln L = 2 - ln N / 2 + (ln N)^2 / 20 at N = 1, e, e^2.
    def bent(z):
        return math.exp(2 - z / 2 + z * z / 20)

    base = {0: {math.exp(z): bent(z) for z in (0, 1, 2)}}
    arm = {0: {math.exp(z): bent(found) for z, found in ((0, 0.4), (1, 1.7), (2, 1.9))}}
    gains = effective_size(base, arm).gains
    assert [gain.gain for gain in gains] == pytest.approx([math.expm1(0.4), math.expm1(0.7), math.expm1(-0.1)])


def test_the_same_runs_gain_nothing():
    assert [gain.gain for gain in effective_size(losses(), losses()).gains] == pytest.approx([0] * 5, abs=1e-9)
    few = losses(sizes=SIZES[:3])
    assert [gain.gain for gain in effective_size(few, few).gains] == pytest.approx([0] * 3, abs=1e-9)


def test_a_base_that_does_not_fall():
    base = {0: {1.0: 4.0, 2.0: 3.0, 3.0: 3.5, 4.0: 2.0}}
    arm = {0: {1.0: 3.2, 2.0: 3.0, 3.0: 3.0, 4.0: 3.0}}
    assert (
        effective_size(base, arm).gains[0].reason == "1 of 1 seeds: the baseline's loss is this at more than one size"
    )


def test_an_exponent_that_is_not_determined():
    rising = {0: {n: 2 + 0.1 * at for at, n in enumerate(SIZES)}}
    found = effective_size(rising, rising)
    assert {gain.reason for gain in found.gains} == {"the exponent of seeds [0] is not determined by the losses"}
    step = {0: {n: 3.0 if at == 0 else 2.0 for at, n in enumerate(SIZES)}}
    assert effective_size(step, step).fits == ()


def test_a_floor_at_its_bound_is_noted():
    bent_down = {0: {n: 5 * (n / 1e5) ** -0.3 - 0.5 for n in SIZES}}
    better = {0: {n: 5 * (1.2 * n / 1e5) ** -0.3 - 0.5 for n in SIZES}}
    found = effective_size(bent_down, better)
    assert found.fits[0].floor == 0
    assert any("at its bound" in note for note in found.notes)


def test_what_a_fit_leaves():
    base, arm = losses(seeds=1), losses(0.3, seeds=1)
    base[0][4e5] += 0.01
    (fit,) = effective_size(base, arm).fits
    shape = (np.array(SIZES) / 1e5) ** -fit.exponent
    assert fit.base_left == pytest.approx(np.array(list(base[0].values())) - fit.floor - fit.base_scale * shape)
    assert fit.arm_left == pytest.approx(np.array(list(arm[0].values())) - fit.floor - fit.arm_scale * shape)


def test_a_gap_that_changes_with_size_is_noted():
    noise = np.random.default_rng(0).normal(scale=0.002, size=(3, 2, 5))
    steady, closing = (
        [{n: law(n, gain) + noise[seed, 1, at] for at, (n, gain) in enumerate(zip(SIZES, gains, strict=True))}
         for seed in range(3)]
        for gains in ([0.5] * 5, [0.8, 0.5, 0.3, 0.1, 0.05])
    )  # fmt: skip
    base = {seed: {n: law(n) + noise[seed, 0, at] for at, n in enumerate(SIZES)} for seed in range(3)}
    assert effective_size(base, dict(enumerate(steady))).notes == ()
    found = effective_size(base, dict(enumerate(closing)))
    assert found.trend and found.trend.mean > 0  # the arm is less ahead at large sizes than one ratio has it
    assert any("the gap changes with size" in note for note in found.notes)


def test_what_is_left_out_is_said():
    base, arm = losses(seeds=4), losses(0.3)
    del base[0][8e5]
    arm[2][3.2e6] = 2.9
    found = effective_size(base, arm)
    assert found.method == "interpolation"
    assert "seeds [3] left out: one arm has no run of them" in found.notes
    assert "sizes ['800000', '3.2e+06'] left out: not every seed of both arms has a loss there" in found.notes


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="0 common seeds with 0 common sizes"):
        effective_size({0: {1.0: 2.0, 2.0: 1.0}}, {1: {1.0: 2.0, 2.0: 1.0}})
    with pytest.raises(ValueError, match="1 common seeds with 1 common sizes"):
        effective_size({0: {1.0: 2.0, 2.0: 1.0}}, {0: {1.0: 2.0, 3.0: 1.0}})
    for bad in (math.nan, 0.0, math.inf):
        with pytest.raises(ValueError, match="not positive and finite"):
            effective_size({0: {1.0: 2.0, 2.0: 1.0}}, {0: {1.0: 2.0, 2.0: bad}})


def test_results_are_json():
    text = json.dumps(asdict(effective_size(losses(), losses(0.3, shift=0.1))), allow_nan=False)
    assert '"method": "fit"' in text
