"""From a study to its runs: keys, budgets, branches, tuning, what may not differ."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Text, make_store
from studies import STEP, plan, trial
from tiny import sentences

from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan
from seedbed.study.trial import ELSEWHERE, Trial, run_key
from seedbed.train.run import flat

GRID = {"grid": {"optim.lr": [1e-3, 2e-3, 4e-3, 8e-3, 16e-3]}, "seed": 9}


def done(trial: Trial, nats: float | None = 2.0, **changes: Any) -> Outcome:
    return replace(Outcome(trial.key, "finished", nats_per_token=nats), **changes)


def carried_out(made: Plan, outcome: Callable[[Trial], Outcome]) -> list[Trial]:
    """Everything that a plan offers, one after another; no run is offered twice, no branch before its trunk."""
    outcomes: dict[str, Outcome] = {}
    order: list[Trial] = []
    while ready := made.ready(outcomes):
        assert len({one.key for one in ready}) == len(ready)
        first = ready[0]
        assert first.key not in outcomes
        assert first.trunk is None or first.trunk[0] in outcomes
        outcomes[first.key] = outcome(first)
        order.append(first)
    return order


def test_seeds_and_arms_are_crossed_and_pair(tiny_store: Path) -> None:
    made = plan(tiny_store, seeds=[3, 4], sizes={"small": {}, "deep": {"model.n_layers": 3}})
    trials = made.trials({})
    assert [(one.cell.name, one.seed) for one in trials] == [
        (f"{gamma}, {size}", seed) for size in ("small", "deep") for gamma in ("0.5", "1.0") for seed in (3, 4)
    ]
    assert all(one.config.run.seed == one.seed for one in trials)
    assert [one.cell.arm for one in trials[:4]] == ["0.5", "0.5", "1.0", "1.0"]
    assert len({one.key for one in trials}) == len(trials)


FINGERPRINTS = {
    "train": "444ecc809e69bc2b0c8a23501a3d8d5683a1a7d2482b8bf4bd51f9c4877fffa1",
    "heldout": "65f59b1b6fc82f865668b7f542af687543dd2c29e8f8e3aa31313291f81970f1",
}

LEAVES = sorted(flat(Config().dump()))


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize("path", LEAVES)
def test_a_key_changes_with_each_field_that_decides_the_outcome(tiny_store: Path, path: str) -> None:
    config, store = trial(tiny_store).config, Store(tiny_store)
    if path == "train.init_from":
        return  # its content decides: below
    changed = _replaced(config, path.split("."))
    assert (run_key(changed, store) == run_key(config, store)) == (path in ELSEWHERE)


def test_a_run_of_an_earlier_release_keeps_its_key(tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a configuration that lacks the fields of later releases, with the key that the run had then."""
    config = Config.load(str(Path(__file__).parent / "config_of_before.yaml"))
    monkeypatch.setattr("seedbed.study.trial.fingerprints", lambda _: FINGERPRINTS)
    assert run_key(config, Store(tiny_store)) == "005f817642766e1e"


def _replaced(section: Any, keys: list[str]) -> Any:
    """A copy with another value at a path, whether or not that would be a valid one."""
    if len(keys) > 1:
        return section.model_copy(update={keys[0]: _replaced(getattr(section, keys[0]), keys[1:])})
    value = getattr(section, keys[0])
    if isinstance(value, tuple):
        return section.model_copy(update={keys[0]: (*value[1:], 0.123)})
    if isinstance(value, int | float) and not isinstance(value, bool):
        return section.model_copy(update={keys[0]: value + 1})
    return section.model_copy(update={keys[0]: not value if isinstance(value, bool) else f"another {value}"})


def test_all_fields_that_lie_elsewhere_are_there() -> None:
    assert set(ELSEWHERE) <= set(LEAVES)


@pytest.fixture(scope="module")
def stores(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny store; a copy of it; one of other texts; one with the same training texts and others held out."""
    from shutil import copytree

    folder = tmp_path_factory.mktemp("stores")
    tokenizer = load_tokenizer(tiny_store / "tokenizer")
    texts = sentences(40, seed=1)
    for name, heldout in (("a", texts[:5]), ("b", texts[5:10]), ("none", [])):
        split = [Text(f"h{i}", text, "heldout") for i, text in enumerate(heldout)]
        rest = [Text(str(i), text, "train") for i, text in enumerate(texts[10:])]
        make_store([*rest, *split], tokenizer, folder / name, seq_len=32, heldout=0.0)
    copytree(tiny_store, folder / "copy")
    return {"tiny": tiny_store} | {name: folder / name for name in ("copy", "a", "b", "none")}


def test_a_key_knows_the_data_and_not_where_it_lies(stores: dict[str, Path]) -> None:
    keys = {name: trial(stores[name]).key for name in ("tiny", "copy", "a", "b")}
    assert keys["tiny"] == keys["copy"]
    assert len({keys["tiny"], keys["a"], keys["b"]}) == 3  # a and b differ in what is held out


def test_a_store_that_holds_nothing_out_compares_nothing(stores: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"0\.5: data\.store=.*none holds nothing out"):
        plan(stores["none"])
    with pytest.raises(InputError, match=r"study tiny, 0\.5: data\.store is not set"):
        plan(stores["tiny"], set={"data.store": None})


def test_arms_that_read_other_data_say_so(stores: dict[str, Path]) -> None:
    for one, other in (("tiny", "a"), ("a", "b")):
        axes = {"data": {"one": {"data.store": str(stores[one])}, "other": {"data.store": str(stores[other])}}}
        changes: dict[str, Any] = {"axes": axes, "compare": {"axis": "data", "baseline": "one"}}
        with pytest.raises(
            InputError, match=r"other and one differ in their data \(\w{12} and \w{12}\); .* with differ: \[data\]"
        ):
            plan(stores[one], **changes)
        assert len(plan(stores[one], differ=["data"], **changes).cells) == 2


GATES = {"gate": {"none": {}, "elementwise": {"model.attention.gate": "elementwise"}}}
COMPARE = {"axis": "gate", "baseline": "none"}


def test_arms_of_another_budget_say_so(tiny_store: Path) -> None:
    """A gate has parameters, and so more tokens where the budget counts tokens per parameter; as many where it counts
    tokens, whatever steps of another size round them to."""
    rule = {"tokens_per_parameter": 0.2}
    with pytest.raises(InputError, match="elementwise and none differ in their budget"):
        plan(tiny_store, axes=GATES, compare=COMPARE, budget=rule)
    assert plan(tiny_store, axes=GATES, compare=COMPARE, budget=rule, differ=["budget"]).cells
    assert plan(tiny_store, axes=GATES, compare=COMPARE).cells
    batches = {"batch": {"train.batch_size": [4, 6]}}
    made = plan(tiny_store, axes=batches, compare={"axis": "batch", "baseline": "4"})
    assert [one.config.train.steps for one in made.trials({})] == [20, 13]


def test_levels_that_come_to_the_same_runs_are_refused(tiny_store: Path) -> None:
    axes = {"gamma": {"usual": {}, "one": {"init.gamma": 1.0}}}  # 1 is the default
    with pytest.raises(InputError, match="study tiny: usual and one are the same runs"):
        plan(tiny_store, axes=axes, compare={"axis": "gamma", "baseline": "one"})
    with pytest.raises(InputError, match=r"0\.5, a and 0\.5, b are the same runs"):
        plan(tiny_store, sizes={"a": {}, "b": {"model.n_layers": 2}}, set={"model.n_layers": 2})


def test_budgets_are_steps_right_by_hand(tiny_store: Path) -> None:
    one = trial(tiny_store, budget={"tokens": 1000})
    assert (one.config.train.steps, one.tokens) == (8, 8 * STEP)  # 1000 / 128 = 7.8
    one = trial(tiny_store, budget={"tokens_per_parameter": 0.2})
    vocabulary, d = Store(tiny_store).header["padded_vocab_size"], 32
    d_ff = 128  # 8/3 * 32 = 85.3, up to a multiple of 64
    blocks = 2 * (4 * d * d + 3 * d * d_ff)
    norms = 2 * 2 * d + d
    assert one.parameters == 2 * vocabulary * d + blocks + norms
    assert one.non_embedding == blocks + norms
    assert one.config.train.steps == round(0.2 * one.parameters / STEP)
    a_token = one.flops / one.tokens
    # 6 a multiplied parameter; the causal half of 12 * layers * width * length is within it or not
    assert 6 * (blocks + vocabulary * d) <= a_token <= 6 * (blocks + vocabulary * d) + 12 * 2 * d * 32
    by_flops = trial(tiny_store, budget={"flops": 30.4 * STEP * a_token})
    assert by_flops.config.train.steps == 30
    assert by_flops.flops == 30 * STEP * a_token


def test_a_run_is_timed_by_the_study(tiny_store: Path) -> None:
    config = trial(tiny_store, budget={"tokens": 10 * STEP}, milestones=4).config
    assert (config.train.steps, config.train.eval_every, config.train.log_every) == (10, 3, 1)
    assert config.optim.schedule.warmup == 0.02  # shares of a run stay where no run branches off


def test_shares_make_the_same_steps_until_their_cooldown(tiny_store: Path) -> None:
    """60 steps, in parts of 3: half of them is 30, and a cooldown of a fifth begins after 24 of 30 and 48 of 60."""
    made = plan(tiny_store, budget={"tokens": 61 * STEP}, shares=[0.26, 0.5, 1.0])
    whole, half, quarter = made.comparison(made.cells[0], {})
    assert [one.share for one in (whole, half, quarter)] == [1.0, 0.5, 0.26]
    assert [one.config.train.steps for one in (whole, half, quarter)] == [60, 30, 15]
    assert [one.config.optim.schedule.decay for one in (whole, half, quarter)] == [12, 6, 3]  # type: ignore[union-attr]
    assert {one.config.optim.schedule.warmup for one in (whole, half, quarter)} == {2}
    assert (half.trunk, quarter.trunk) == ((whole.key, 24), (whole.key, 12))
    assert whole.config.train.checkpoint_every == 12
    assert whole.config.train.keep_checkpoints >= 5
    assert half.config.train.checkpoint_every == 0  # that of the study: nothing branches off it
    assert half.flops == pytest.approx(whole.flops * 6 / 60)  # its cooldown alone
    assert half.tokens == 30 * STEP


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shares": [0.05, 1.0]}, "share 0.05 is 1 steps, too few for a warmup of 1 and a cooldown"),
        ({"shares": [0.5, 0.51, 1.0]}, "shares 0.5 and 0.51 are both 10 of 20 steps; leave one out"),
        ({"shares": [0.5, 1.0], "set": {"optim.schedule.kind": "cosine"}}, "needs optim.schedule.kind=wsd"),
        ({"shares": [0.5, 1.0], "set": {"optim.schedule.decay": 1.0, "optim.schedule.warmup": 0}},
         "share 0.5 is 10 steps, too few for a warmup of 0 and a cooldown"),
        ({"budget": {"tokens": 60}}, "a budget of 60 tokens is less than one step of 128"),
        ({"budget": {"tokens": 1e300}}, "more than a run can have"),
        ({"set": {"optim.schedule.warmup": 30}}, "warmup + decay = 30 + 4 = 34 steps, more than train.steps=20"),
        ({"set": {"model.max_seq_len": 16}}, "study tiny, 0.5: model.max_seq_len=16 is shorter than the bins"),
        ({"set": {"model.dmodel": 16}}, "model.dmodel: unknown key; did you mean 'd_model'?"),
        ({"set": {"train.guard.nonfinite": "rollback", "train.checkpoint_every": 5}}, "choose stop or skip"),
        ({"set": {"optim.schedule": {"kind": "wsd"}, "optim.schedule.decay": 0.1}},
         "optim.schedule.decay is part of optim.schedule, which is set too"),
        ({"set": {"optim.eps": {"times": 1, "width_pow": 1}}}, "optim.eps"),
        ({"set": {"optim.eps": {"times": True, "width_power": 1}}}, "optim.eps: write {times: NUMBER, width_power"),
        ({"set": {"optim.eps": {"times": 2}}}, "optim.eps: write {times: NUMBER, width_power: NUMBER}"),
        ({"set": {"optim.eps": {"times": 1, "width_power": 1e4}}}, "optim.eps: 1 * 32^10000.0 is too large a number"),
        ({"tune": {"grid": {"optim.muon.momentum": [0.9, 0.95, 1.0]}, "seed": 9}}, "optim.muon.momentum"),
        ({"base": {"file": "mine.yaml", "values": {"model": {"dmodel": 16}}}}, "mine.yaml: model.dmodel: unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_told_before_anything_runs(tiny_store: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(tiny_store, **changes)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schedule_is_held_against_the_steps_of_the_study(tiny_store: Path) -> None:
    """Not against train.steps of the base, which the study replaces: 300 by default."""
    changes: dict[str, Any] = {"budget": {"tokens": 400 * STEP}, "set": {"optim.schedule.warmup": 310}}
    assert trial(tiny_store, **changes).config.train.steps == 400


def test_values_that_scale_with_the_width(tiny_store: Path) -> None:
    rule = {"model.norm_eps": {"times": 41.9, "width_power": -2}, "optim.lr": {"times": 2, "width_power": -0.5}}
    config = trial(tiny_store, set=rule).config
    assert config.model.norm_eps == 0.0409180  # 41.9 / 32^2 to six digits
    assert config.optim.lr == 0.353553


def test_later_layers_win_and_grouped_levels_set_several_fields(tiny_store: Path) -> None:
    axes = {
        "gamma": {"init.gamma": [0.5, 1.0]},
        "setting": {"usual": {}, "adjusted": {"model.norm_eps": 1e-7, "model.attention.gate": "elementwise"}},
    }
    made = plan(tiny_store, axes=axes, set={"model.norm_eps": 1e-5}, differ=["budget"])
    seen = {one.cell.arm: (one.config.init.options["gamma"], one.config.model.norm_eps, one.config.model.attention.gate)
            for one in made.trials({})}  # fmt: skip
    assert seen == {
        "0.5, usual": (0.5, 1e-5, "none"), "0.5, adjusted": (0.5, 1e-7, "elementwise"),
        "1.0, usual": (1.0, 1e-5, "none"), "1.0, adjusted": (1.0, 1e-7, "elementwise"),
    }  # fmt: skip


def test_what_all_start_from_and_its_own_length_replaced(tiny_store: Path) -> None:
    values = {"run": {"dir": "x", "seed": 5}, "train": {"steps": 7, "eval_every": -1}, "model": {"norm_eps": 1e-3}}
    base = {"file": "base.yaml", "values": values}
    config = trial(tiny_store, base=base).config
    assert (config.train.steps, config.train.eval_every, config.run.seed) == (20, 5, 0)
    assert config.model.norm_eps == 1e-3
    assert trial(tiny_store, set={"model.norm_eps": 1e-3}).key == trial(tiny_store, base=base).key


def test_an_arm_takes_its_best_rate_to_fresh_seeds(tiny_store: Path) -> None:
    """gamma 0.5 is best at 2e-3 and gamma 1.0 at 8e-3; each is compared there, on the other seeds."""
    best = {"0.5": 2e-3, "1.0": 8e-3}
    made = plan(tiny_store, tune=GRID, seeds=[0, 1], shares=[0.5, 1.0])
    order = carried_out(made, lambda one: done(one, abs(one.config.optim.lr - best[one.cell.arm])))
    tuning = [one for one in order if one.stage == "tune"]
    assert {one.seed for one in tuning} == {9}
    assert {one.share for one in tuning} == {1.0}
    compared = [one for one in order if one.stage == "compare"]
    assert {(one.cell.arm, one.config.optim.lr) for one in compared} == set(best.items())
    assert sorted((one.cell.arm, one.seed, one.share) for one in compared) == sorted(
        (arm, seed, share) for arm in best for seed in (0, 1) for share in (0.5, 1.0)
    )
    assert made.problems({one.key: done(one, abs(one.config.optim.lr - best[one.cell.arm])) for one in order}) == []


def test_a_rate_at_the_edge_is_no_result_and_a_wider_grid_goes_on(tiny_store: Path) -> None:
    def loss(one: Trial) -> Outcome:
        return done(one, one.config.optim.lr)

    made = plan(tiny_store, tune=GRID)
    order = carried_out(made, loss)
    assert all(one.stage == "tune" for one in order)
    problems = made.problems({one.key: loss(one) for one in order})
    assert problems[0] == (
        "0.5: the best optim.lr, 0.001, is at the edge of its grid (0.001 to 0.016); widen it: what was run stays"
    )
    wider = plan(tiny_store, tune=GRID | {"grid": {"optim.lr": [2.5e-4, 5e-4, *GRID["grid"]["optim.lr"]]}})
    known = {one.key: loss(one) for one in order}
    assert {one.tuned["optim.lr"] for one in wider.ready(known)} == {5e-4}


def test_a_run_that_diverged_is_never_the_best(tiny_store: Path) -> None:
    """Not even with a low loss at its last evaluation before that."""

    def outcome(one: Trial) -> Outcome:
        if one.config.optim.lr > 4e-3:
            return done(one, 0.1, status="diverged", reason="step 9: loss nan")
        return done(one, abs(one.config.optim.lr - 2e-3))

    made = plan(tiny_store, tune=GRID)
    order = carried_out(made, outcome)
    assert {one.config.optim.lr for one in order if one.stage == "compare"} == {2e-3}


def test_where_all_diverge_every_lower_value_was_tried(tiny_store: Path) -> None:
    def outcome(one: Trial) -> Outcome:
        return done(one, None, status="diverged", reason="step 3: loss nan")

    made = plan(tiny_store, tune=GRID)
    order = carried_out(made, outcome)
    tried = [one.config.optim.lr for one in order if one.cell.arm == "0.5"]
    assert sorted(tried) == [1e-3, 2e-3, 8e-3]
    problems = made.problems({one.key: outcome(one) for one in order})
    assert problems == [f"{arm}: every run down to optim.lr=0.001 diverged; lower the grid" for arm in ("0.5", "1.0")]


def test_a_failed_tuning_run_holds_its_arm_alone(tiny_store: Path) -> None:
    made = plan(tiny_store, tune=GRID)
    first = made.ready({})[0]
    outcomes = {first.key: Outcome(first.key, "failed", "disk full")}
    assert {one.cell.arm for one in made.ready(outcomes)} == {"0.5", "1.0"} - {first.cell.arm}
    assert made.problems(outcomes) == [f"{first.cell.arm}: a tuning run failed: disk full"]


def test_a_branch_waits_for_its_trunk_also_for_one_that_failed(tiny_store: Path) -> None:
    made = plan(tiny_store, shares=[0.5, 1.0])
    trunk, branch = made.comparison(made.cells[0], {})
    assert trunk in made.ready({})
    assert branch not in made.ready({})
    assert branch not in made.ready({trunk.key: Outcome(trunk.key, "failed", "killed")})
    assert branch in made.ready({trunk.key: done(trunk)})
    assert branch in made.ready({trunk.key: done(trunk, None, status="diverged")})  # it may end before that


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    losses=st.lists(st.floats(1, 9) | st.none(), min_size=5, max_size=5), shares=st.sampled_from([[1.0], [0.5, 1.0]])
)
def test_whatever_comes_out_a_plan_ends(tiny_store: Path, losses: list[float | None], shares: list[float]) -> None:
    made = plan(tiny_store, tune=GRID, shares=shares, axes={"gamma": {"init.gamma": [0.5]}})
    rates = GRID["grid"]["optim.lr"]

    def outcome(one: Trial) -> Outcome:
        nats = losses[rates.index(one.config.optim.lr)]
        return done(one, nats, status="diverged" if nats is None else "finished")

    order = carried_out(made, outcome)
    outcomes = {one.key: outcome(one) for one in order}
    compared = [one for one in order if one.stage == "compare"]
    assert len(compared) == (0 if made.problems(outcomes) else len(shares))
    assert [one.key for one in made.trials(outcomes)] != []
