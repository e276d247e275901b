"""Scores and standard errors by hand, against scipy, and by simulation."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seedbed.eval.scores import Items, influences, macro, scored, standard_error, value_of


def items(values, weights=None, strata=None, **fields) -> Items:
    return Items("task", "all", "metric", [str(i) for i in range(len(values))], values, weights, strata, **fields)


def test_a_plain_mean_has_the_standard_error_of_the_mean():
    values = [1.0, 0.0, 1.0, 1.0]
    score, of = scored("m", items(values), "share", "higher")
    assert (score.value, score.items, of.values) == (0.75, 4, values)
    assert score.stderr == pytest.approx(stats.sem(values)) == pytest.approx(0.25)


def test_weights_by_hand():
    # R = (1·2 + 3·1) / 4 = 1.25; u = (0.75, -0.75) / 4; sqrt(2 · 2 · 0.1875²) = 0.375
    score = scored("m", items([2.0, 1.0], [1.0, 3.0]), "nats/token", "lower").score
    assert (score.value, score.stderr) == (1.25, pytest.approx(0.375))
    doubled = scored("m", items([2.0, 1.0], [2.0, 6.0]), "nats/token", "lower").score
    assert (doubled.value, doubled.stderr) == (score.value, score.stderr)


def test_exponentials_by_the_delta_method():
    found = scored("m", items([2.0, 1.0], [1.0, 3.0], scale="exp"), "", "lower").score
    assert found.value == pytest.approx(math.exp(1.25))
    assert found.stderr == pytest.approx(0.375 * math.exp(1.25))


def test_strata_are_no_chance():
    strata = ["a", "b", "a", "b"]
    assert scored("m", items([0.0, 1.0, 0.0, 1.0], strata=strata), "share", "higher").score.stderr == 0
    # within a: s² = 0.5 over 2 items; b has none: sqrt(0.25) / 2
    found = scored("m", items([0.0, 1.0, 1.0, 1.0], strata=strata), "share", "higher").score
    assert (found.value, found.stderr) == (0.75, pytest.approx(0.25))


def test_a_macro_mean_weighs_parts_alike():
    one = Items("task", "one", "metric", ["1", "2", "3", "4"], [1.0, 1.0, 1.0, 0.0])
    two = Items("task", "two", "metric", ["5", "6"], [1.0, 0.0])
    score = scored("m", macro([one, two], "macro"), "share", "higher").score
    assert score.value == pytest.approx((0.75 + 0.5) / 2)
    assert score.stderr == pytest.approx(math.hypot(stats.sem(one.values), stats.sem(two.values)) / 2)
    with pytest.raises(ValueError, match="no mean"):
        macro([one, replace(two, metric="other")], "macro")


def test_single_items_have_no_error():
    assert scored("m", items([0.5]), "share", "higher").score.stderr is None
    assert scored("m", items([0.5, 0.2, 0.3], strata=["a", "a", "b"]), "share", "higher").score.stderr is None


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 9)), min_size=2, max_size=20))
def test_influences_sum_to_nothing_and_are_derivatives(pairs):
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    for scale in ("mean", "exp"):
        of = items(values, weights, scale=scale)
        found = influences(of)
        assert found.sum() == pytest.approx(0, abs=1e-9 * max(1, value_of(of)))
        step = 1e-6  # a little more of the first item
        more = value_of(items(values, [weights[0] * (1 + step), *weights[1:]], scale=scale))
        assert (more - value_of(of)) / step == pytest.approx(found[0], abs=1e-4 * max(1, value_of(of)))


def test_the_error_is_that_of_repeated_draws():
    generator = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(2000):  # long documents are easier, so weights and values go together
        weights = generator.lognormal(3, 0.7, 60)
        of = items((3 - 0.2 * np.log(weights) + generator.normal(0, 0.3, 60)).tolist(), weights.tolist())
        found.append(value_of(of))
        errors.append(standard_error(influences(of)))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.06)


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": [1.0]},
        {"values": [1.0, math.nan]},
        {"ids": ["0", "0"]},
        {"ids": [], "values": []},
        {"weights": [1.0]},
        {"weights": [0.0, 0.0]},
        {"weights": [2.0, -1.0]},
        {"strata": ["a"]},
    ],
)
def test_items_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="task, all, metric"):
        replace(items([1.0, 2.0]), **wrong)


def test_both_are_json():
    found = scored("m", items([1.0, 2.0], [1.0, 2.0]), "share", "higher")
    assert json.loads(json.dumps([asdict(one) for one in found]))[0]["value"] == pytest.approx(5 / 3)
