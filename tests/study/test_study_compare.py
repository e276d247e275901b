"""Two studies side by side: what pairs, what does not, and what differs between them."""

from dataclasses import replace

import pytest
from fake_study import carried_out, law, made_plan, outcome_of
from scipy import stats

from seedbed.measure.table import Rows
from seedbed.study.compare import compare
from seedbed.study.estimate import cell_costs
from seedbed.study.results import results


@pytest.fixture(scope="module")
def make(tiny_store, tmp_path_factory):
    def made(shift=0.0, **changes):
        plan = made_plan(tiny_store, **changes)
        loss = lambda trial, done: law(trial, done) + shift  # noqa: E731
        return results(plan, carried_out(plan, lambda trial: outcome_of(trial, loss)), tmp_path_factory.mktemp("runs"))

    return made


@pytest.fixture(scope="module")
def first(make):
    return make()


@pytest.fixture(scope="module")
def decayed(tiny_store):
    """Settings of the same cells with another decay of weights."""
    return {**made_plan(tiny_store).spec.set, "optim.weight_decay": 0.2}


@pytest.fixture(scope="module")
def second(make, decayed):
    return make(shift=-0.3, set=decayed)


def test_runs_of_the_same_seeds_and_data_pair(first, second):
    found = compare(first, second)
    assert (found.unit, found.same_data, found.smoke) == ("nats per token", True, False)
    row = next(r for r in found.shared if (r.arm, r.size, r.share) == ("gamma 1.0", "2x16", 1.0))
    losses = [
        {r.seed: r.nats_per_token for r in one.runs if (r.stage, r.arm, r.size, r.share) == ("compare", *place)}
        for one in (first, second)
        for place in [("gamma 1.0", "2x16", 1.0)]
    ]
    test = stats.ttest_rel([losses[1][seed] for seed in range(3)], [losses[0][seed] for seed in range(3)])
    assert row.method == "paired over 3 seeds"
    assert row.difference == pytest.approx(sum(losses[1].values()) / 3 - sum(losses[0].values()) / 3)
    assert row.p == pytest.approx(test.pvalue)
    assert row.family == 6
    assert (found.only_a, found.only_b) == ([], [])
    assert [(r.path, r.arm, r.value_a, r.value_b) for r in found.settings if r.path == "optim.weight_decay"] == [
        ("optim.weight_decay", "all", "0.1", "0.2")
    ]


def test_other_seeds_are_compared_by_welch(first, make, decayed):
    found = compare(first, make(shift=-0.3, set=decayed, seeds=[5, 6, 7, 8]))
    row = found.shared[0]
    assert row.method == "Welch"
    assert (row.n_a, row.n_b) == (3, 4)
    assert row.difference == pytest.approx(row.mean_b - row.mean_a)
    parts = row.std_a**2 / 3, row.std_b**2 / 4
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)  # Welch and Satterthwaite
    half = stats.t.ppf(0.975, freedom) * sum(parts) ** 0.5
    assert (row.low, row.high) == (pytest.approx(row.difference - half), pytest.approx(row.difference + half))


def test_other_data_are_compared_in_bits_a_byte(first, second):
    other = replace(second, data={"elsewhere": "another fingerprint"})
    found = compare(first, other)
    row = found.shared[0]
    assert (found.unit, row.method) == ("bits per byte", "Welch")
    runs = [
        r.bits_per_byte for r in first.runs if (r.stage, r.arm, r.size, r.share) == ("compare", row.arm, row.size, 1)
    ]
    assert row.mean_a == pytest.approx(sum(runs) / 3)


def test_one_seed_has_no_interval(first, make, decayed):
    found = compare(first, make(set=decayed, seeds=[0]))
    assert found.smoke
    assert {(row.method, row.p, row.p_holm) for row in found.shared} == {("one seed: no interval", None, None)}


def test_a_study_against_itself(first):
    found = compare(first, first)
    assert {(row.method, row.difference, row.p) for row in found.shared} == {("the same runs", 0.0, None)}
    assert list(found.settings) == []
    assert not found.smoke


def test_a_study_with_one_more_seed_is_the_same_runs(first, make):
    found = compare(first, make(seeds=[0, 1, 2, 3]))
    told = {(row.method, row.difference, row.p) for row in found.shared}
    assert told == {("the same runs of seeds 0, 1, 2", 0.0, None)}
    assert {(row.n_a, row.n_b) for row in found.shared} == {(3, 4)}
    assert not found.smoke


def test_tokens_are_counted_as_the_plan_does(first, tiny_store):
    plan = made_plan(tiny_store)
    planned = {cost.size: cost.tokens for cost in cell_costs(plan)}
    found = compare(first, first)
    assert {(row.size, row.tokens_a, row.tokens_b) for row in found.shared if row.share == 1.0} == {
        (size, tokens, tokens) for size, tokens in planned.items()
    }


def test_levels_in_another_order_are_the_same_cell_and_others_are_told(first):
    def renamed(name):
        return "x, gamma 1.0" if name == "gamma 1.0" else name

    a = replace(first, runs=Rows(replace(r, arm="gamma 1.0, x") if r.arm == "gamma 1.0" else r for r in first.runs))
    b = replace(first, runs=Rows(replace(r, arm=renamed(r.arm)) for r in first.runs if r.arm != "gamma 0.5"))
    found = compare(a, b)
    assert ("gamma 1.0, x", "x, gamma 1.0") in {(row.arm, row.arm_b) for row in found.shared}
    assert found.only_b == []
    assert all(one.startswith("gamma 0.5, 2x") for one in found.only_a)
    assert len(found.only_a) == 4
