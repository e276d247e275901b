"""What a study's models are asked after their last step is what `seedbed eval` would say of them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import studies
import tiny
from fake_study import carried_out, made_plan, outcome_of, scores

from seedbed.api import fit
from seedbed.errors import InputError
from seedbed.eval.evaluation import Source, evaluate
from seedbed.eval.questions import about_pairs, about_text
from seedbed.files.parts import Parts
from seedbed.hub.models import open_model
from seedbed.study.compared import Compared
from seedbed.study.evaluate import Evaluate
from seedbed.study.plan import Plan
from seedbed.study.run import known_outcomes, run
from seedbed.study.scores import score_rows
from seedbed.study.statistics import paired
from seedbed.study.work import work

train = partial(fit, tell=tiny.quiet, page=False)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Texts of two domains and pairs of two paradigms, as fields of a study's ``evaluate``."""
    folder = tmp_path_factory.mktemp("asked")
    texts = [
        {"id": f"{domain} {at}", "text": text, "domain": domain, "lang": "en"}
        for seed, domain in enumerate(("fables", "notes"))
        for at, text in enumerate(tiny.sentences(6, seed=50 + seed))
    ]
    pairs = [
        {"sentence_good": good[:9], "sentence_bad": good[8::-1], "UID": paradigm, "field": "syntax"}
        for paradigm in ("first", "second")
        for good in tiny.sentences(4, seed=60)
    ]
    for name, rows in (("texts", texts), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"data": [str(folder / "texts.jsonl")], "pairs": [str(folder / "pairs.jsonl")], "limit": 3}


def carry_out(plan: Plan, runs: Path, trains: Any) -> None:
    state = run(plan, runs, studies.in_this_process(work), trains, 1, lambda *_: None)
    assert state.failed == {}


def never(config: Any) -> None:
    raise AssertionError(f"{config.run.dir} is trained again")


@pytest.fixture(scope="module")
def done(tiny_store: Path, asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """Two runs and a branch of each, trained by a study that asks nothing, then asked by one that does."""
    runs, shares = tmp_path_factory.mktemp("study") / "runs", [0.5, 1.0]
    carry_out(studies.plan(tiny_store, shares=shares), runs, train)
    plan = studies.plan(tiny_store, shares=shares, evaluate=asked)
    carry_out(plan, runs, never)
    return plan, runs


def test_scores_are_those_of_an_evaluation_of_the_checkpoint(done: tuple[Plan, Path], asked: dict[str, Any]) -> None:
    plan, runs = done
    rows, told = score_rows(Compared(plan, known_outcomes(plan, runs)))
    trial = plan.comparison(plan.cells[1], {})[0]
    length = trial.config.model.max_seq_len
    questions = {
        "text": about_text([Path(path) for path in asked["data"]], length, None),
        "pairs": about_pairs([Path(path) for path in asked["pairs"]], 3),
    }
    source = Source("it", None, lambda: open_model(runs / trial.key))
    expected, _ = evaluate("it", [source], questions, Parts(None, None), tiny.quiet)
    found = {(row.task, row.subset, row.metric): (row.mean, row.items) for row in rows if row.arm == "gamma 1.0"}
    assert found == {(one.task, one.subset, one.metric): (one.value, one.items) for one in expected.scores}
    assert {subset for _, subset, _ in found} >= {"domain: fables", "domain: notes", "first", "second"}
    assert any(f"first {length:,} tokens" in line for line in told)


def test_branches_and_tuning_runs_are_not_asked(done: tuple[Plan, Path]) -> None:
    plan, runs = done
    looks = {
        trial.share: outcome.after for trial in plan.trials({}) if (outcome := known_outcomes(plan, runs)[trial.key])
    }
    assert plan.evaluation in looks[1.0] and plan.evaluation not in looks[0.5]


def test_what_is_asked_again_is_not_made_again(
    done: tuple[Plan, Path], tiny_store: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, runs = done
    monkeypatch.setattr("seedbed.study.work.answers", never)
    carry_out(plan, runs, never)


def test_other_files_have_another_name(asked: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "texts.jsonl"
    copy.write_bytes(Path(asked["data"][0]).read_bytes())
    names = [Evaluate(data=[path]).look for path in (asked["data"][0], str(copy), str(tmp_path))]
    assert names[0] == names[1] == names[2]  # wherever they lie
    other = tmp_path / "other" / "texts.jsonl"
    other.parent.mkdir()
    other.write_bytes(copy.read_bytes() + b"\n")
    assert Evaluate(data=[str(other)]).look not in names
    assert Evaluate(data=[str(copy)], documents=3).look not in names


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"data": ["none.jsonl"]}, "evaluate.data: none.jsonl: no such file or folder"),
        ({"pairs": ["none"]}, "evaluate.pairs: none: no such file or folder"),
    ],
)
def test_what_is_not_there_is_said_before_anything_runs(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Evaluate(**wrong).whole()


def test_pairs_are_read_before_anything_runs(asked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="sentence_good"):
        Evaluate(pairs=asked["data"]).whole()


def test_a_study_that_asks_nothing_is_refused(tiny_store: Path) -> None:
    with pytest.raises(InputError, match="name texts"):
        studies.spec(tiny_store, evaluate={"limit": 3})


def test_differences_pair_by_seed(tiny_store: Path, asked: dict[str, Any]) -> None:
    """Of the seeds that both arms have an answer of."""
    plan = made_plan(tiny_store, evaluate=asked)
    assert plan.evaluation is not None
    outcomes = carried_out(plan)
    answered = {}
    for trial in plan.trials(outcomes):
        if plan.evaluation in plan.looks(trial) and (trial.cell.arm, trial.seed) != ("0.5", 1):
            outcomes[trial.key].after[plan.evaluation] = scores(trial)
            answered[trial.cell.name, trial.seed] = scores(trial)["scores"][2]
    rows, _ = score_rows(Compared(plan, outcomes))
    (row,) = [r for r in rows if (r.arm, r.size, r.subset, r.metric) ==
              ("gamma 1.0", "2x16", "domain: books", "bits per byte")]  # fmt: skip
    base, own = ([answered[f"{gamma}, 2x16", seed]["value"] for seed in (0, 2)] for gamma in ("0.5", "1.0"))
    expected = paired(base, own)
    assert (row.more, row.more_low, row.more_high) == (expected.mean, expected.low, expected.high)
    assert row.n == 3
    assert all(r.more is None for r in rows if r.arm == "gamma 0.5")


def test_an_outcome_keeps_what_other_studies_asked(tiny_store: Path, asked: dict[str, Any]) -> None:
    plan = made_plan(tiny_store, evaluate=asked)
    outcomes = carried_out(plan, lambda trial: outcome_of(trial))
    for outcome in outcomes.values():
        outcome.after["evaluation of another study"] = {"scores": [], "told": ["theirs"]}
    assert score_rows(Compared(plan, outcomes)) == ([], [])
