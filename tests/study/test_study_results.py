"""A study's outcomes put together: numbers by hand, and what is never a hole."""

import math
from dataclasses import replace

import pytest
from fake_study import carried_out, made_plan, outcome_of

from seedbed.study.compared import Compared, together
from seedbed.study.outcome import Outcome
from seedbed.study.results import results
from seedbed.study.statistics import mean_interval


@pytest.fixture(scope="module")
def plan(tiny_store):
    return made_plan(tiny_store)


@pytest.fixture(scope="module")
def outcomes(plan):
    return carried_out(plan)


@pytest.fixture(scope="module")
def result(plan, outcomes, tmp_path_factory):
    return results(plan, outcomes, tmp_path_factory.mktemp("runs"))


def only(rows, **fields):
    (found,) = [row for row in rows if all(getattr(row, name) == value for name, value in fields.items())]
    return found


def test_every_run_is_a_row(result, plan, outcomes):
    assert {row.key for row in result.runs} == set(outcomes)
    assert {row.status for row in result.runs} == {"finished"}
    compared = [row for row in result.runs if row.stage == "compare"]
    assert len(compared) == 3 * 2 * 3 * 2  # arms, sizes, seeds, shares
    assert all(cell.finished == 6 and cell.missing == 0 for cell in result.cells)
    assert result.problems == []


def test_final_losses_are_means_over_seeds(result):
    row = only(result.losses, arm="gamma 1.0", size="2x16", share=1.0)
    runs = [r for r in result.runs if (r.stage, r.arm, r.size, r.share) == ("compare", "gamma 1.0", "2x16", 1.0)]
    losses = [run.nats_per_token for run in runs]
    mean = sum(losses) / 3
    std = math.sqrt(sum((loss - mean) ** 2 for loss in losses) / 2)
    assert (row.mean, row.std, row.n, row.seeds) == (pytest.approx(mean), pytest.approx(std), 3, 3)
    assert row.high - row.mean == pytest.approx(4.30265 * std / math.sqrt(3), rel=1e-4)
    assert row.bits_per_byte == pytest.approx(mean / 1.47)
    assert row.tokens_per_parameter == pytest.approx(row.tokens / row.parameters)
    half = only(result.losses, arm="gamma 1.0", size="2x16", share=0.5)
    assert (half.tokens, half.flops) == (row.tokens / 2, pytest.approx(row.flops / 2))


def test_differences_pair_by_seed(result):
    row = only(result.differences, level="gamma 1.0", size="2x32", share=1.0)
    loss = {
        (r.arm, r.seed): r.nats_per_token for r in result.runs if (r.stage, r.size, r.share) == ("compare", "2x32", 1.0)
    }
    gaps = [loss["gamma 1.0", seed] - loss["gamma 0.5", seed] for seed in (0, 1, 2)]
    assert row.mean == pytest.approx(sum(gaps) / 3)
    assert (row.baseline, row.others, row.n) == ("gamma 0.5", "", 3)
    families = {share: [r for r in result.differences if r.share == share] for share in (1.0, 0.5)}
    for rows in families.values():
        smallest = min(rows, key=lambda r: r.p)
        assert {r.family for r in rows} == {4}  # two levels at two sizes
        assert smallest.p_holm == pytest.approx(min(1, 4 * smallest.p))


def test_how_differences_go_with_tokens(result):
    row = only(result.slopes, level="gamma 1.0", over="tokens", at="2x16")
    whole, half = (only(result.differences, level="gamma 1.0", size="2x16", share=share) for share in (1.0, 0.5))
    assert row.mean == pytest.approx(whole.mean - half.mean)
    assert {r.over for r in result.slopes} == {"tokens", "parameters", "non-embedding parameters"}


def test_how_losses_end(plan, result, tiny_store, tmp_path):
    whole, half = (only(result.losses, arm="gamma 1.0", size="2x16", share=share) for share in (1.0, 0.5))
    assert whole.end_slope == pytest.approx(whole.mean - half.mean)  # a doubling lies between them
    assert half.end_slope is None  # there is no smaller share
    runs = {
        share: {r.seed: r.nats_per_token for r in result.runs
                if (r.stage, r.arm, r.size, r.share) == ("compare", "gamma 1.0", "2x16", share)}
        for share in (1.0, 0.5)
    }  # fmt: skip
    changes = mean_interval([runs[1.0][seed] - runs[0.5][seed] for seed in (0, 1, 2)])
    assert (whole.slope_low, whole.slope_high) == pytest.approx((changes.low, changes.high))
    alone = made_plan(tiny_store, shares=[1.0])
    one = only(results(alone, carried_out(alone), tmp_path).losses, arm="gamma 1.0", size="2x16")
    assert one.end_slope < 0  # along the runs


def test_losses_that_effective_sizes_rest_on(result):
    row = only(result.scaling, level="gamma 1.0", size="2x32", share=1.0, counted="without embeddings")
    base, level = (only(result.losses, arm=arm, size="2x32", share=1.0) for arm in ("gamma 0.5", "gamma 1.0"))
    assert (row.base_mean, row.base_low, row.base_high) == pytest.approx((base.mean, base.low, base.high))
    assert (row.mean, row.low, row.high, row.n) == pytest.approx((level.mean, level.low, level.high, 3))
    cell = only(result.cells, arm="gamma 0.5", size="2x32")
    assert row.parameters == cell.non_embedding
    assert only(result.scaling, level="gamma 1.0", size="2x32", share=1.0, counted="all parameters").parameters == (
        cell.parameters
    )


def test_what_is_beyond_the_last_losses(result):
    assert {row.method for row in result.effective_sizes} == {"interpolation"}
    assert {row.counted for row in result.effective_sizes} == {"all parameters", "without embeddings"}
    assert any("line between two sizes" in row.note for row in result.effective_notes)
    assert [row.value for row in result.knob if (row.size, row.share) == ("2x16", 1.0)] == [0.5, 0.75, 1.0]
    assert {(row.size, row.width) for row in result.optima} == {("2x16", 16), ("2x32", 32)}
    curve = [row for row in result.curves if (row.arm, row.size) == ("gamma 0.5", "2x16")]
    assert [row.n for row in curve] == [3] * 8
    assert not any(row.interpolated for row in curve)
    # the formula falls everywhere, so that each level either reaches the other's loss or does not
    for row in result.tokens_to_loss:
        assert (row.ratio is None) == bool(row.reason)
        assert (row.by, row.n) == ("ends", 3)


def test_what_was_looked_at(result, plan, outcomes):
    flow = only(result.looks, arm="gamma 0.5", size="2x16", share=1.0, measure="flow", when="after")
    found = Compared(plan, outcomes)
    done = found.done(plan.cells[0])
    assert flow.mean == pytest.approx(sum(one.outcome.after["residual"]["flow"] for one in done.values()) / 3)
    worst = only(result.looks, arm="gamma 0.5", size="2x16", share=1.0, part="worst norm", when="before")
    assert worst.mean == pytest.approx(sum(max(one.outcome.before["masking"].values()) for one in done.values()) / 3)
    ranks = [r for r in result.weights if (r.arm, r.size, r.component, r.measure)
             == ("gamma 0.5", "2x16", "attn.q", "stable_rank")]  # fmt: skip
    assert len(ranks) == 5
    tenths = [row for row in result.token_gains if (row.level, row.size) == ("gamma 1.0", "2x16")]
    whole, *parts = tenths
    assert (whole.tenth, whole.tokens, [row.tokens for row in parts]) == (0, 200, [20] * 10)
    assert whole.gain == pytest.approx(sum(row.gain for row in parts) / 10)
    assert [row.difficulty for row in parts] == sorted(row.difficulty for row in parts)


def test_settings_that_differ(result):
    assert {row.path for row in result.configs} >= {"init.gamma", "model.d_model", "train.steps"}
    assert not {"run.seed", "run.dir", "data.store"} & ({row.path for row in result.configs} | set(result.shared))
    assert result.shared["optim.name"] == "adamw"


def test_diverged_failed_and_missing_runs_are_rows_with_reasons(plan, outcomes, tmp_path):
    cell = plan.cells[0]
    trials = {
        trial.seed: trial for trial in plan.comparison(cell, plan.chosen(cell, outcomes).tuned) if trial.trunk is None
    }
    told = dict(outcomes)
    # what a diverged run had before it is no result, however low
    told[trials[0].key] = replace(outcomes[trials[0].key], status="diverged", reason="loss is NaN", nats_per_token=0.1)
    told[trials[1].key] = Outcome(trials[1].key, "failed", "disk full")
    del told[trials[2].key]
    (tmp_path / trials[2].key).mkdir()
    result = results(plan, told, tmp_path)
    reasons = {row.key: (row.status, row.reason, row.nats_per_token) for row in result.runs if row.status != "finished"}
    assert reasons == {
        trials[0].key: ("diverged", "loss is NaN", None),
        trials[1].key: ("failed", "disk full", None),
        trials[2].key: ("missing", "begun, not ended", None),
    }
    row = only(result.cells, arm="gamma 0.5", size="2x16")
    assert (row.finished, row.diverged, row.failed, row.missing) == (3, 1, 1, 1)
    assert not [row for row in result.losses if (row.arm, row.size, row.share) == ("gamma 0.5", "2x16", 1.0)]
    assert not [row for row in result.differences if (row.size, row.share) == ("2x16", 1.0)]
    assert [r for r in result.problems if r.startswith("optimum of gamma at 2x16, share 1:")]


def test_a_seed_that_one_arm_lacks_is_in_no_pair(plan, outcomes, tmp_path):
    cell = plan.cells[0]
    trial = next(t for t in plan.comparison(cell, plan.chosen(cell, outcomes).tuned) if t.trunk is None)
    told = {**outcomes, trial.key: replace(outcomes[trial.key], status="diverged", reason="spike")}
    row = only(results(plan, told, tmp_path).differences, level="gamma 1.0", size="2x16", share=1.0)
    assert (row.n, row.seeds) == (2, 3)


def test_the_edge_of_a_grid_is_no_result(tiny_store, tmp_path):
    plan = made_plan(tiny_store, tune={"grid": {"optim.lr": [1e-4, 2e-4, 4e-4]}, "seed": 100})
    result = results(plan, carried_out(plan), tmp_path)
    assert all("at the edge of its grid" in cell.problem and not cell.finished for cell in result.cells)
    assert (list(result.losses), list(result.differences)) == ([], [])
    assert {row.value for row in result.configs if row.path == "optim.lr"} <= {"not chosen"}


def test_nothing_has_begun(plan, tmp_path):
    result = results(plan, {}, tmp_path)
    assert {row.status for row in result.runs} == {"missing"}
    assert all(cell.missing == 6 for cell in result.cells)


def test_one_seed_has_neither_intervals_nor_p(tiny_store, tmp_path):
    plan = made_plan(tiny_store, seeds=[0])
    result = results(plan, carried_out(plan), tmp_path)
    assert result.smoke
    for row in [*result.losses, *result.differences, *result.tokens_to_loss, *result.optima]:
        assert (row.low, row.high) == (None, None)
    assert all(row.p is None and row.p_holm is None for row in result.differences)


def test_costs_count_what_a_run_made_itself(plan, result):
    whole, half = (
        only(result.runs, stage="compare", arm="gamma 0.5", size="2x16", share=share, seed=0) for share in (1.0, 0.5)
    )
    assert half.branched == whole.key
    assert half.own_tokens < half.tokens == whole.tokens / 2
    assert half.flops / half.own_tokens == pytest.approx(whole.flops / whole.own_tokens)


def test_counts_of_seeds_that_look_after_the_same_steps_are_one():
    assert together([[(100, 5.0), (200, 4.0)], [(101, 5.1), (199, 4.1)]]) == [
        [(100.5, 5.0), (199.5, 4.0)], [(100.5, 5.1), (199.5, 4.1)]
    ]  # fmt: skip
    apart = [[(100, 5.0)], [(110, 5.1)]]
    assert together(apart) == apart
    assert together([[(100, 5.0)], [(100, 5.0), (200, 4.0)]]) == [[(100, 5.0)], [(100, 5.0), (200, 4.0)]]


def test_an_outcome_without_looks(plan, tmp_path):
    bare = carried_out(
        plan, lambda trial: replace(outcome_of(trial), before={}, after={}, weights=[], gradient_norms=[])
    )
    result = results(plan, bare, tmp_path)
    assert [list(result.looks), list(result.weights), list(result.gradients), list(result.token_gains)] == [[]] * 4


def test_a_gain_on_tokens_is_positive_where_the_level_is_better(plan, tmp_path):
    def make(trial):
        better = 0.5 if trial.config.init.options["gamma"] == 1.0 else 0.0
        return replace(outcome_of(trial), after={"token_losses": [[at / 2 + 1 - better for at in range(40)]]})

    rows = [r for r in results(plan, carried_out(plan, make), tmp_path).token_gains if r.level == "gamma 1.0"]
    assert [row.gain for row in rows] == pytest.approx([0.5] * 22)  # two sizes, all tokens and ten tenths
    assert [row.probability_gain for row in rows] == pytest.approx([math.tanh(0.25)] * 22)
    assert rows[1].difficulty == pytest.approx((1 + 1.5 + 2 + 2.5) / 4 - 0.25)


def test_token_losses_that_do_not_pair_are_told(plan, tmp_path):
    def unlike(trial):
        count = 21 if trial.config.init.options["gamma"] == 1.0 else 20
        return replace(outcome_of(trial), after={"token_losses": [[1.0] * count]})

    result = results(plan, carried_out(plan, unlike), tmp_path)
    assert {row.level for row in result.token_gains} == {"gamma 0.75"}
    assert "token gains of gamma 1.0, 2x16, seed 0: 20 tokens against 21" in result.problems
