"""Differences of two models: exact small examples, and intervals that cover what they should."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from seedbed.errors import InputError
from seedbed.eval.paired import paired
from seedbed.eval.scores import Items, influences, standard_error


def items(values, weights=None, strata=None, scale="mean", ids=None) -> Items:
    names = [f"i{n}" for n in range(len(values))] if ids is None else ids
    return Items("task", "all", "metric", names, list(values), weights, strata, scale)


def test_mcnemar_by_hand():
    # of 10 items: 4 only b, 1 only a, 3 both, 2 neither; P(X <= 1 of 5) twice = 2 · 6 / 32
    a = items([1, 0, 0, 0, 0, 1, 1, 1, 0, 0])
    b = items([0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    found = paired(a, b)
    assert (found.test, found.items, found.only_a, found.only_b) == ("McNemar, exact", 10, 1, 4)
    assert found.difference == pytest.approx(0.3)
    assert found.p == pytest.approx(12 / 32)
    d = np.subtract(b.values, a.values)
    assert found.stderr == pytest.approx(d.std(ddof=1) / np.sqrt(10))
    back = paired(b, a)
    assert (back.difference, back.low, back.high) == pytest.approx((-found.difference, -found.high, -found.low))
    assert (back.p, back.only_a, back.only_b) == (pytest.approx(found.p), 4, 1)


def test_plain_values_are_scipys_paired_t_test():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x + rng.normal(0.2, 0.5, size=40)
    found, theirs = paired(items(x), items(y)), stats.ttest_rel(y, x)
    assert found.test == "paired t" and found.only_a is None
    assert found.p == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_order_of_items_does_not_matter_and_other_items_are_refused():
    a = items([0.0, 1.5, 2.0, 4.0], [1, 2, 3, 4])
    b = items([1.0, 1.0, 2.5, 3.0], [1, 2, 3, 5])
    turned = Items(b.task, b.subset, b.metric, b.ids[::-1], b.values[::-1], [5, 3, 2, 1])
    assert paired(a, turned) == paired(a, b)
    with pytest.raises(InputError, match="2 are not in both, such as i3"):
        paired(a, replace(b, ids=["i0", "i1", "i2", "x"]))
    with pytest.raises(InputError, match="compared with task, all, other"):
        paired(a, replace(b, metric="other"))
    with pytest.raises(InputError, match="other parts of the test"):
        paired(replace(a, strata=["x", "x", "y", "y"]), replace(b, strata=["x", "y", "y", "x"]))


def test_nothing_tells_the_models_apart():
    same = paired(items([1, 0, 1]), items([1, 0, 1]))
    assert (same.difference, same.stderr, same.low, same.p) == (0, 0, None, 1.0)
    same = paired(items([1.5, 0.5]), items([1.5, 0.5]))
    assert (same.difference, same.stderr, same.low, same.p) == (0, 0, None, None)
    shifted = paired(items([1.5, 0.1, 3.3]), items([1.6, 0.2, 3.4]))  # by the same everywhere: no spread to tell it by
    assert (shifted.difference, shifted.stderr, shifted.p) == (pytest.approx(0.1), 0, None)
    one = paired(items([1.5]), items([2.5]))
    assert (one.difference, one.stderr, one.low, one.p) == (1, None, None, None)


def test_unequal_weights_are_no_sign_test():
    found = paired(items([1, 0, 1], [1, 1, 2]), items([0, 1, 1], [1, 1, 2]))
    assert found.test == "paired t"
    assert paired(items([1, 0, 1], [2, 2, 2]), items([0, 1, 1], [3, 3, 3])).test == "McNemar, exact"


def test_strata_and_perplexity_use_the_influences():
    strata, weights = ["x", "x", "y", "y", "y"], [1.0, 2, 1, 1, 3]
    a, b = (items(v, weights, strata, "exp") for v in ([2, 1, 3, 2, 2.5], [1.5, 1, 2, 2.5, 2]))
    found = paired(a, b)
    expected = np.exp(np.average(b.values, weights=weights)) - np.exp(np.average(a.values, weights=weights))
    assert found.difference == pytest.approx(expected)
    assert found.stderr == pytest.approx(standard_error(influences(b) - influences(a), strata))
    assert found.high == pytest.approx(found.difference + stats.t.ppf(0.975, 3) * found.stderr)


def right_or_wrong(rng):
    """Two models of 250 questions that are hard or easy for both; the true difference is 0.05 x 0.8."""
    easy = rng.random(250)
    chance = 0.2 + 0.6 * easy
    a = (rng.random(250) < chance).astype(int)
    b = np.where(rng.random(250) < 0.8, (rng.random(250) < chance + 0.05).astype(int), a)
    return items(a.tolist()), items(b.tolist()), 0.04


def documents(rng):
    """Nats per token of 120 documents of 20 to 400 tokens, whose losses go together; the longer ones are easier."""
    tokens = rng.integers(20, 400, 120).astype(float)
    common = 3 - tokens / 400 + rng.normal(0, 0.5, 120)
    a, b = (common + shift + rng.normal(0, 2 / np.sqrt(tokens)) for shift in (0.0, -0.1))
    return items(a.tolist(), tokens.tolist()), items(b.tolist(), tokens.tolist()), -0.1


@pytest.mark.parametrize("draw", [right_or_wrong, documents])
def test_intervals_cover_the_true_difference(draw):
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(1000):
        a, b, true = draw(rng)
        found = paired(a, b)
        covered += found.low <= true <= found.high
    assert 930 <= covered <= 970


def test_p_values_of_equal_models_are_honest():
    """Under no difference, p < 0.05 comes in at most about one of twenty."""
    rng, exact, t = np.random.default_rng(3), 0, 0
    for _ in range(1000):
        chance = rng.random(200)
        x, y = ((rng.random(200) < chance).astype(int).tolist() for _ in range(2))
        exact += paired(items(x), items(y)).p < 0.05
        u = rng.normal(size=(2, 30)) + rng.normal(size=30)
        t += paired(items(u[0]), items(u[1])).p < 0.05
    assert exact <= 60  # a discrete test is below its level
    assert 30 <= t <= 70
