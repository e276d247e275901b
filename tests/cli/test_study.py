"""The commands of a study: what they show, write and refuse."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from studies import in_this_process

from seedbed.cli import study
from seedbed.study.outcome import Outcome, read_outcome, write_outcome
from seedbed.study.plan import Plan
from seedbed.study.run import known_outcomes
from seedbed.study.spec import load_spec

RECIPES = Path(__file__).parents[2] / "recipes" / "studies"


def tree(store: Path, **changes: Any) -> dict[str, Any]:
    """Two arms at one size: a grid of five rates, two seeds, twenty steps a run."""
    return {
        "name": "tiny",
        "question": "Which gamma is better?",
        "axes": {"gamma": {"init.gamma": [0.5, 1.0]}},
        "compare": {"axis": "gamma", "baseline": "0.5"},
        "set": {
            "optim.name": "adamw", "data.store": str(store), "model.max_seq_len": 32, "train.batch_size": 4,
            "train.eval_sequences": 4, "train.device": "cpu",
        },
        "sizes": {"widths": [16], "layers": 1, "head_dim": 8},
        "tune": {"grid": {"optim.lr": [1e-3, 4e-3, 1.6e-2, 6.4e-2, 0.256]}, "seed": 9},
        "seeds": [0, 1],
        "budget": {"tokens": 2560},
        "milestones": 2,
        "observe": [],
    } | changes  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_store, undrawn):
    """A folder to work in, with a study's file."""
    monkeypatch.chdir(tmp_path)
    write(tree(tiny_store))
    return tmp_path


def write(values: dict[str, Any]) -> None:
    Path("tiny.yaml").write_text(yaml.safe_dump(values))


@pytest.fixture
def made_up(monkeypatch):
    """Runs end at once in this process: the rate nearest ``best`` has the lowest loss, and gamma 1 a lower one."""
    told: dict[str, Any] = {"best": 1.6e-2, "made": [], "fails": lambda task: False}

    def work(task: Any) -> None:
        told["made"].append(task.name)
        config, folder = task.config, Path(task.folder)
        folder.mkdir(parents=True, exist_ok=True)
        rate, gamma, seed = config["optim"]["lr"], config["init"]["gamma"], config["run"]["seed"]
        loss = 5 - 0.1 * gamma + 0.01 * seed + abs(rate - told["best"])
        curve = [(1280, loss + 1), (2560, loss)]
        if told["fails"](task):
            write_outcome(folder, Outcome(task.key, "failed", "out of luck"))
        else:
            ended = {"nats_per_token": loss, "bits_per_byte": 2.0, "steps": 20, "tokens": 2560, "curve": curve}
            write_outcome(folder, Outcome(task.key, "finished", **ended, wall_s=2.0, train_s=1.0))

    monkeypatch.setattr("seedbed.study.local.local_engine", lambda workers, say: in_this_process(work))
    return told


def test_a_plan_counts_by_hand(place, seedbed):
    code, out, _ = seedbed("study", "plan", "tiny.yaml", "--no-timing", "--json")
    document = json.loads(out)
    assert code == 0
    # two arms; at first every second of five rates, five at most; two seeds
    runs = {name: work["runs"] for name, work in document["runs"].items() if isinstance(work, dict)}
    assert runs == {
        "ended": 0, "tuning_now": 4, "tuning_at_most": 10, "comparison": 4, "left_at_least": 8, "left_at_most": 14,
    }  # fmt: skip
    cell = document["cells"][0]
    assert (cell["steps"], cell["tokens"]) == (20, 2560)  # 4 sequences of 32 a step
    assert document["runs"]["comparison"]["tokens"] == 4 * 2560
    assert document["runs"]["comparison"]["flops"] == pytest.approx(4 * cell["flops"])
    assert cell["tokens_per_parameter"] == 2560 / cell["parameters"]
    assert document["runs"]["left_at_most"]["seconds"] is None
    assert list(place.iterdir()) == [place / "tiny.yaml"]


def test_a_plan_says_what_the_models_are_asked(place, seedbed, tiny_store):
    Path("asked.jsonl").write_text('{"text": "One of the texts."}\n')
    write(tree(tiny_store, tune=None, evaluate={"data": ["asked.jsonl"]}))
    _, out, _ = seedbed("study", "plan", "tiny.yaml", "--no-timing")
    assert f"evaluated {place / 'asked.jsonl'}; runs of the whole budget" in out
    assert "tuning" not in out
    code, _, err = seedbed("study", "plan", "tiny.yaml", "evaluate.data=[gone.jsonl]")
    assert (code, err.splitlines()[-1]) == (2, "error: evaluate.data: gone.jsonl: no such file or folder")


def test_branches_cost_what_they_train_themselves(place, seedbed, tiny_store):
    write(tree(tiny_store, shares=[0.5, 1.0], tune=None, seeds=[0]))
    document = json.loads(seedbed("study", "plan", "tiny.yaml", "--no-timing", "--json")[1])
    # of the ten steps of the shorter run two are its own cooldown
    assert document["runs"]["comparison"]["tokens"] == 2 * (2560 + 2 * 128)
    assert document["smoke"]


def test_time_is_that_of_a_few_steps_and_says_so(place, seedbed):
    code, out, err = seedbed("study", "plan", "tiny.yaml", "--workers", 1)
    assert code == 0, err
    assert "steps of 0.5 tried on" in out and "not estimated" not in out
    assert list(place.iterdir()) == [place / "tiny.yaml"]


def test_too_large_a_step_is_not_tried(place, seedbed, monkeypatch):
    monkeypatch.setattr("seedbed.study.estimate.SMALL", {"cpu": 1.0, "cuda": 1.0})
    _, out, _ = seedbed("study", "plan", "tiny.yaml")
    assert "more than the 1e+00 that are tried here" in out and "not estimated" in out


def test_a_study_runs_reports_and_does_nothing_twice(place, seedbed, made_up):
    code, out, err = seedbed("study", "run", "tiny.yaml", "--json")
    document = json.loads(out)
    assert code == 0, err
    # 3 of 5 rates for each arm, then two seeds
    assert (document["known"], document["finished"], document["problems"]) == (12, 12, [])
    folder = place / "runs" / "studies" / "tiny"
    for name in ("study.yaml", "report/report.html", "report/report.md", "report/runs.csv", "report/result.json"):
        assert (folder / name).is_file()
    assert len(made_up["made"]) == 12
    assert "tuning 0.5, 1x16, seed 9, optim.lr=0.004: 5.0520 nats per token, 2 s; 1 of 4 known runs have ended" in err
    assert "12 of 12 known runs have ended" in err
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    assert len(made_up["made"]) == 12
    assert seedbed("study", "run", folder)[0] == 0  # what it was, from its folder
    assert len(made_up["made"]) == 12
    planned = json.loads(seedbed("study", "plan", "tiny.yaml", "--no-timing", "--json")[1])
    assert planned["runs"]["ended"]["runs"] == 12 and planned["runs"]["left_at_most"]["runs"] == 0


def test_time_of_runs_that_finished_here(place, seedbed, made_up, monkeypatch):
    monkeypatch.setattr("platform.platform", lambda: "here")
    seedbed("study", "run", "tiny.yaml")
    runs = place / "runs" / "studies" / "tiny" / "runs"
    for folder in runs.glob("*/outcome.json"):
        outcome = read_outcome(folder.parent)
        assert outcome
        write_outcome(folder.parent, Outcome(**{**vars(outcome), "versions": {"platform": "here"}}))
    document = json.loads(seedbed("study", "plan", "tiny.yaml", "seeds=[0,1,2]", "--json")[1])
    assert document["speeds"][0]["basis"] == (
        "12 runs that finished on a machine like this with 1 thread, by operations, and 1.0 s beside the steps"
    )
    assert document["runs"]["comparison"]["runs"] == 2  # a third seed of two arms
    assert document["runs"]["comparison"]["seconds"] == pytest.approx(4.0)  # 2 s each


def test_a_best_rate_at_the_edge_ends_with_3_and_a_wider_grid_keeps_what_was_run(place, seedbed, made_up, tiny_store):
    made_up["best"] = 1e-3
    code, out, _ = seedbed("study", "run", "tiny.yaml", "--json")
    assert code == 3  # its own guard; 2 would be wrong input, and nothing written
    assert len(json.loads(out)["problems"]) == 2
    assert "widen it: what was run stays" in json.loads(out)["problems"][0]
    before = len(made_up["made"])
    write(tree(tiny_store, tune={"grid": {"optim.lr": [2.5e-4, 1e-3, 4e-3, 1.6e-2, 6.4e-2]}, "seed": 9}))
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    assert len(made_up["made"]) - before == 2 + 4  # the new rate and two seeds, of two arms


def test_a_failed_run_ends_with_1_and_is_tried_again(place, seedbed, made_up):
    made_up["fails"] = lambda task: "1.0" in task.name and "seed 1" in task.name
    code, out, err = seedbed("study", "run", "tiny.yaml")
    assert code == 1
    assert "1.0, 1x16, seed 1, optim.lr=0.016: ended without an outcome" in err
    assert "11 of 12 known runs finished, 1 failed" in out
    planned = json.loads(seedbed("study", "plan", "tiny.yaml", "--no-timing", "--json")[1])["runs"]
    assert (planned["ended"]["runs"], planned["left_at_least"]["runs"]) == (11, 1)
    made_up["fails"] = lambda task: False
    assert seedbed("study", "run", "tiny.yaml")[0] == 0


def test_what_waits_behind_a_failed_tuning_run_is_left_to_do(place, seedbed, made_up):
    made_up["fails"] = lambda task: "1.0" in task.name and "seed 9" in task.name
    assert seedbed("study", "run", "tiny.yaml")[0] == 1
    planned = json.loads(seedbed("study", "plan", "tiny.yaml", "--no-timing", "--json")[1])
    # of the arm 0.5 four rates and two seeds have ended; of the other two seeds, and rates up to all five, are left
    assert (planned["runs"]["ended"]["runs"], planned["runs"]["comparison"]["runs"]) == (6, 2)
    assert planned["runs"]["tuning_at_most"]["runs"] == 5
    assert len(planned["problems"]) == 1


def test_studies_share_runs_and_report_finds_them(place, seedbed, made_up, tiny_store):
    assert seedbed("study", "run", "tiny.yaml", "--runs", "shared")[0] == 0
    write(tree(tiny_store, name="more", seeds=[0, 1, 2]))
    assert seedbed("study", "run", "tiny.yaml", "--runs", "shared")[0] == 0
    assert len(made_up["made"]) == 12 + 2
    assert seedbed("study", "report", "runs/studies/tiny", "-o", "page")[0] == 0
    assert (place / "page" / "report.html").is_file()
    code, out, err = seedbed("study", "compare", "runs/studies/tiny", "runs/studies/more", "--json")
    assert code == 0, err
    assert [row["n_a"] for row in json.loads(out)["shared"]] == [2, 2]
    kept = (place / "runs/studies/more/study.yaml").read_text()
    code, _, err = seedbed("study", "run", "tiny.yaml", "seeds=[5]", "--runs", "elsewhere")
    assert code == 2 and "has the study's runs" in err
    assert (place / "runs/studies/more/study.yaml").read_text() == kept
    (place / "shared").rename(place / "moved")
    code, _, err = seedbed("study", "run", "tiny.yaml")
    assert code == 2 and "more/runs: the runs it links to" in err and "are not there; bring them back" in err


def test_an_engine_or_a_folder_that_is_not_there_changes_nothing(place, seedbed, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for more, told in ((["--engine", "ray"], "ray is not installed"), (["--runs", "tiny.yaml"], "is a file")):
        code, _, err = seedbed("study", "run", "tiny.yaml", *more)
        assert code == 2 and told in err
    assert list(place.iterdir()) == [place / "tiny.yaml"]


def test_a_report_that_was_cut_short_is_written_anew(place, seedbed, made_up):
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    last = place / "runs" / "studies" / "tiny" / "report" / "result.json"
    last.unlink()
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    assert last.is_file()


def test_a_report_of_other_data_is_told(place, seedbed, made_up):
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    _, _, err = seedbed("study", "run", "tiny.yaml")
    assert "the data changed" not in err
    last = place / "runs" / "studies" / "tiny" / "report" / "result.json"
    last.write_text(json.dumps(json.loads(last.read_text()) | {"data": {"store": "another"}}))
    _, _, err = seedbed("study", "run", "tiny.yaml")
    assert "the data changed: 12 finished runs of other data stay and are not used" in err
    last.write_text("{")
    assert seedbed("study", "run", "tiny.yaml")[0] == 0


def test_all_of_the_tuning_diverged_ends_with_3_and_a_report(place, seedbed, made_up, monkeypatch):
    def work(task: Any) -> None:
        Path(task.folder).mkdir(parents=True, exist_ok=True)
        write_outcome(Path(task.folder), Outcome(task.key, "diverged", "step 3: loss nan"))

    monkeypatch.setattr("seedbed.study.local.local_engine", lambda workers, say: in_this_process(work))
    code, _, err = seedbed("study", "run", "tiny.yaml")
    assert code == 3 and "every run down to optim.lr=" in err
    assert (place / "runs/studies/tiny/report/report.html").is_file()


def test_a_study_goes_on_as_it_was_when_its_base_has_changed(place, seedbed, made_up, tiny_store):
    Path("base.yaml").write_text("model: {norm_eps: 1.0e-3}")
    write(tree(tiny_store, base="base.yaml"))
    assert seedbed("study", "run", "tiny.yaml")[0] == 0
    Path("base.yaml").write_text("model: {norm_eps: 1.0e-4}")
    assert seedbed("study", "run", "runs/studies/tiny")[0] == 0
    assert len(made_up["made"]) == 12
    assert seedbed("study", "run", "tiny.yaml")[0] == 0  # its file means what its base says now
    assert len(made_up["made"]) == 24


def test_a_scale_has_a_folder_of_its_own(place, seedbed, tiny_store):
    write(tree(tiny_store, scales={"cpu": {"seeds": [0]}, "more": {}}))
    document = json.loads(seedbed("study", "plan", "tiny.yaml", "size=cpu", "--no-timing", "--json")[1])
    assert document["folder"] == "runs/studies/tiny-cpu"


WRONG: list[tuple[dict[str, Any], list[str], str]] = [
    ({"axes": {"gamma": {}}}, [], "axes.gamma: is empty"),
    ({"axes": {"gamma": {"a": {"init.gama": 1.0}, "b": {"init.gamma": 0.5}}},
      "compare": {"axis": "gamma", "baseline": "b"}}, [], "a, 1x16: override 'init.gama=1.0'"),
    ({}, ["data.store=nowhere"], "nowhere"),
    ({}, ["size=cpu"], "the study has one scale"),
    ({"scales": {"cpu": {}}}, ["size=huge"], "no such scale; known: cpu"),
    ({"scales": {"cpu": {}}}, [], "has the scales cpu; choose one"),
    ({}, ["seeds=[9]"], "tune.seed=9 is one of seeds"),
    ({}, ["tune.grid.optim.lr=[0.1,0.2]"], "write three values at least"),
    ({"base": "missing.yaml"}, [], "tiny.yaml: base: "),
    ({}, ["train.steps=3"], "train.steps is the study's to set"),
    ({"axes": {"gamma": {"a": {"init.gamma": 0.5}, "b": {"train.batch_size": 8, "data.store": "other"}}},
      "compare": {"axis": "gamma", "baseline": "a"}}, [], "tiny, b, 1x16: data.store=other: no token store there"),
]  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(("changes", "overrides", "told"), WRONG, ids=[told for *_, told in WRONG])
def test_wrong_input_is_one_line_and_changes_nothing(place, seedbed, tiny_store, command, changes, overrides, told):
    write(tree(tiny_store, **changes))
    code, out, err = seedbed("study", command, "tiny.yaml", *overrides)
    assert (code, out) == (2, "")
    assert told in err and err.startswith("error: ") and err.count("\n") == 1
    assert list(place.iterdir()) == [place / "tiny.yaml"]


def test_a_folder_of_another_study_and_of_other_files(place, seedbed, made_up, tiny_store):
    assert seedbed("study", "run", "tiny.yaml", "-o", "mine")[0] == 0
    write(tree(tiny_store, name="other"))
    code, _, err = seedbed("study", "run", "tiny.yaml", "-o", "mine")
    assert code == 2 and "holds another study, tiny" in err
    (place / "full").mkdir()
    (place / "full" / "letter.txt").write_text("kept")
    code, _, err = seedbed("study", "run", "tiny.yaml", "-o", "full")
    assert code == 2 and "holds other files" in err
    code, _, err = seedbed("study", "report", "mine", "-o", "full")
    assert code == 2 and "holds other files" in err
    code, _, err = seedbed("study", "run", "mine", "seeds=[3]")
    assert code == 2 and "overrides go with its file" in err
    code, _, err = seedbed("study", "report", "tiny.yaml")
    assert code == 2 and "there are no runs" in err


def test_one_seed_is_marked(place, seedbed, made_up):
    assert "one seed" in seedbed("study", "plan", "tiny.yaml", "seeds=[0]", "--no-timing")[2]
    assert seedbed("study", "run", "tiny.yaml", "seeds=[0]")[0] == 0
    assert "SMOKE" in (place / "runs" / "studies" / "tiny" / "report" / "report.html").read_text()


@pytest.mark.slow
def test_a_study_is_trained_for_real(place, seedbed, tiny_store):
    write(tree(tiny_store, observe=["residual", "masking"]))
    code, out, err = seedbed("study", "run", "tiny.yaml", "--workers", 2, "--json")
    assert code == 0, err
    plan = Plan(load_spec("tiny.yaml"))
    outcomes = known_outcomes(plan, Path("runs/studies/tiny/runs"))
    assert json.loads(out)["finished"] == len(plan.trials(outcomes))


def test_the_function_that_trains_can_be_sent_to_another_process():
    import pickle

    assert pickle.loads(pickle.dumps(study._train)) is study._train


@pytest.mark.parametrize("size", ["cpu", "small", "paper"])
@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:model.vocab_size")
def test_recipes_can_be_planned(recipe, size, tiny_store, monkeypatch):
    """With the first size of many; what depends on the size is the same code."""
    monkeypatch.chdir(RECIPES.parents[1])
    spec = load_spec(recipe, [f"size={size}", f"data.store={tiny_store}"])
    sizes = dict(list(spec.sizes.items())[:1])
    plan = Plan(spec.model_copy(update={"sizes": sizes}))
    assert len(plan.cells) == len({trial.key for cell in plan.cells for trial in plan.comparison(cell, {})[:1]})
    assert plan.spec.notes
