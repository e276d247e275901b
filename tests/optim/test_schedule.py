import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.config.optim import ConstantSchedule, CosineSchedule, WsdSchedule
from seedbed.errors import InputError
from seedbed.optim.schedule import rate, span, validate


def rates(steps, schedule):
    validate(steps, schedule)
    return [rate(step, steps, schedule) for step in range(steps)]


def test_span_counts_steps_or_takes_a_share_rounded_up():
    assert span(7, 100) == 7
    assert span(0.02, 300) == 6
    assert span(0.021, 300) == 7
    assert span(0.07, 100) == 7  # 7.000000000000001 in floating point
    assert span(1.0, 40) == 40
    assert span(1, 40) == 1
    assert span(0.0, 40) == 0


def test_warmup_rises_in_equal_parts_to_the_peak():
    assert rates(10, ConstantSchedule(kind="constant", warmup=4)) == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]


def test_cosine_is_half_way_in_the_middle():
    values = rates(8, CosineSchedule(kind="cosine", warmup=0, final=0.2))
    assert values[3] == pytest.approx(0.6)
    assert values[-1] == 0.2


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("linear", [1, 1, 0.75, 0.5, 0.25, 0]), ("sqrt", [1, 1, 0.5, 1 - math.sqrt(0.5), 1 - math.sqrt(0.75), 0])],
)
def test_wsd_cooldown_shapes(shape, expected):
    assert rates(6, WsdSchedule(warmup=1, decay=4, shape=shape)) == pytest.approx(expected)


@given(
    steps=st.integers(1, 400),
    warmup=st.one_of(st.integers(0, 500), st.floats(0, 1)),
    decay=st.one_of(st.integers(0, 500), st.floats(0, 1)),
    final=st.floats(0, 1),
    kind=st.sampled_from(["constant", "cosine", "linear", "sqrt"]),
)
def test_every_schedule_is_refused_or_ends_exactly_at_its_target(steps, warmup, decay, final, kind):
    if kind == "constant":
        schedule, target = ConstantSchedule(kind="constant", warmup=warmup), 1.0
    elif kind == "cosine":
        schedule, target = CosineSchedule(kind="cosine", warmup=warmup, final=final), final
    else:
        schedule, target = WsdSchedule(warmup=warmup, decay=decay, shape=kind, final=final), final
    try:
        values = rates(steps, schedule)
    except InputError as error:
        assert str(error).startswith("optim.schedule.")
        assert "\n" not in str(error)
        return
    assert values[-1] == target
    assert all(0 <= value <= 1 for value in values)
    peak = span(warmup, steps)
    assert values[:peak] == sorted(values[:peak])
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert all(values[:-1])  # no step but the last may be made with a rate of 0


def test_warmup_longer_than_the_run_is_refused_with_the_fields_and_the_remedy():
    with pytest.raises(
        InputError, match=r"^optim\.schedule\.warmup: warmup = 11 steps, more than train\.steps=10; sho"
    ):
        validate(10, ConstantSchedule(kind="constant", warmup=11))
    with pytest.raises(InputError, match=r"warmup \+ decay = 6 \+ 5 = 11 steps.*or optim\.schedule\.decay"):
        validate(10, WsdSchedule(warmup=6, decay=5))
    with pytest.raises(InputError, match=r"warmup \+ the last step = 10 \+ 1"):
        validate(10, CosineSchedule(kind="cosine", warmup=10))


def test_decay_of_zero_needs_no_target_below_the_peak():
    with pytest.raises(InputError, match=r"optim\.schedule\.decay=0 .*constant"):
        validate(10, WsdSchedule(decay=0))
    assert rates(3, WsdSchedule(warmup=0, decay=0, final=1.0)) == [1, 1, 1]


def test_a_target_above_the_peak_is_refused():
    with pytest.raises(InputError, match=r"optim\.schedule\.final=2"):
        validate(10, CosineSchedule(kind="cosine", final=2.0))


def test_decay_over_the_whole_run():
    assert rates(4, WsdSchedule(warmup=0, decay=1.0, shape="linear")) == [0.75, 0.5, 0.25, 0]


def test_an_extended_run_keeps_its_plateau_and_cools_down_later():
    schedule = WsdSchedule(warmup=2, decay=4)
    assert rates(10, schedule)[:6] == rates(20, schedule)[:6]
    assert rates(20, schedule)[6:16] == [1.0] * 10
    assert rates(20, schedule)[-1] == 0


def test_a_step_outside_the_run_is_our_failure():
    with pytest.raises(ValueError, match="step 10 of a run of 10"):
        rate(10, 10, ConstantSchedule(kind="constant"))
