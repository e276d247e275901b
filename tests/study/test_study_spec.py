"""What a study is: its file, scales, overrides, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from studies import spec, tree

from seedbed.config.reader import parse_yaml, write_yaml
from seedbed.errors import InputError
from seedbed.study.observe import LOOKS
from seedbed.study.run import STUDY, read_study, study_folder
from seedbed.study.spec import Base, Spec, load_spec, spec_from


def loaded(tmp_path: Path, *overrides: str, **changes: Any) -> Spec:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(tree(None, **changes)))
    return load_spec(path, overrides)


def test_levels_are_written_out_and_called_by_their_values() -> None:
    axes = {"gamma": {"init.gamma": [0.5, 1, "x", None, 1e-12]}, "named": {"a": {}, "b": {"model.tied": True}}}
    made = spec(None, axes=axes, compare={"axis": "gamma", "baseline": 0.5})
    assert list(made.axes["gamma"]) == ["0.5", "1", "x", "null", "1e-12"]
    assert made.axes["gamma"]["1e-12"] == {"init.gamma": 1e-12}
    assert made.axes["named"] == {"a": {}, "b": {"model.tied": True}}
    assert made.compare.baseline == "0.5"


def test_sizes_by_the_rule() -> None:
    """By hand: 8/3 * 24 = 64, 8/3 * 64 = 170.7, up to 176; a ratio that divides is not rounded up."""
    made = spec(None, set={}, sizes={"widths": [24, 64], "layers": [2, 4], "head_dim": 8})
    assert {name: list(values.values()) for name, values in made.sizes.items()} == {
        "2x24": [24, 2, 3, 8, 64],
        "4x64": [64, 4, 8, 8, 176],
    }
    assert list(made.sizes["2x24"]) == [
        "model.d_model", "model.n_layers", "model.attention.n_heads", "model.attention.head_dim", "model.ffn.d_ff",
    ]  # fmt: skip
    ratio = {"widths": [30], "layers": 1, "head_dim": 10, "ffn_ratio": 0.1, "ffn_multiple": 1}
    assert spec(None, set={}, sizes=ratio).sizes["1x30"]["model.ffn.d_ff"] == 3  # 0.1 * 30 is 3.0000000000000004


def test_a_study_reads_back_as_it_was(tmp_path: Path) -> None:
    whole: dict[str, Any] = {
        "sizes": {"widths": [16], "layers": 1, "head_dim": 8}, "tune": {"grid": {"optim.lr": [1e-3, 2, 3]}, "seed": 9},
        "axes": {"gamma": {"init.gamma": [0.5, 1.0]}, "eps": {"a": {"model.norm_eps": {"times": 2, "width_power": 1}}}},
        "shares": [0.5, 1.0], "notes": {"scale": "yes"}, "source": "S0",
    }  # fmt: skip
    made = spec(None, set={}, **whole)
    assert spec_from(parse_yaml(write_yaml(made.dump()), "x"), "x") == made


def test_every_look_that_a_study_may_ask_for_is_there() -> None:
    assert spec(None, observe=list(LOOKS)).observe == list(LOOKS)


def test_overrides_set_the_study_or_the_configuration_of_all_runs(tmp_path: Path) -> None:
    grid = {"grid": {"optim.lr": [1e-3, 2e-3, 4e-3]}, "seed": 9}
    made = loaded(
        tmp_path, "seeds=[3, 4]", "model.n_layers=3", "set.model.norm_eps=1e-5", "budget.tokens=1e4",
        "tune.grid.optim.lr=[1, 2, 3]", "axes.gamma={init.gamma: [0.7, 0.5]}", tune=grid,
    )  # fmt: skip
    assert made.seeds == [3, 4]
    assert (made.set["model.n_layers"], made.set["model.norm_eps"]) == (3, 1e-5)
    assert made.budget.tokens == 1e4
    assert made.tune is not None
    assert made.tune.grid == {"optim.lr": [1, 2, 3]}
    assert list(made.axes["gamma"]) == ["0.7", "0.5"]


def test_a_base_lies_beside_the_study_and_one_of_the_command_line_where_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, width in (("study", 16), ("here", 32)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "base.yaml").write_text(f"model: {{d_model: {width}}}")
    monkeypatch.chdir(tmp_path / "here")
    for overrides, folder, width in (([], "study", 16), (["base=base.yaml"], "here", 32)):
        made = loaded(tmp_path / "study", *overrides, base="base.yaml")
        assert made.base == Base(file=str(tmp_path / folder / "base.yaml"), values={"model": {"d_model": width}})
    with pytest.raises(InputError, match=r"study\.json: base: .*nowhere\.yaml: no such configuration file"):
        loaded(tmp_path, base="nowhere.yaml")


@pytest.mark.parametrize("sizes", [{}, {"sizes": {"widths": [16], "layers": 1, "head_dim": 8}}], ids=["none", "rule"])
def test_a_study_in_its_folder_is_what_it_was_when_it_was_run(tmp_path: Path, sizes: dict[str, Any]) -> None:
    """Also where the file of its base changes, or goes."""
    base = tmp_path / "base.yaml"
    base.write_text("{model: {norm_eps: 1.0e-3, vocab_size: null}, optim: {betas: [0.9, 0.95]}}")
    made = loaded(tmp_path, base="base.yaml", set={}, **sizes)
    with study_folder(tmp_path / "kept", made):
        pass
    base.write_text("{model: {norm_eps: 1.0e-9}}")
    assert read_study(tmp_path / "kept") == made
    assert made.base is not None and made.base.values["model"] == {"norm_eps": 1e-3, "vocab_size": None}
    base.unlink()
    assert read_study(tmp_path / "kept") == made
    assert load_spec(tmp_path / "kept" / STUDY) == made


def test_scales_are_chosen_and_merged(tmp_path: Path) -> None:
    scales: dict[str, Any] = {
        "cpu": {"set": {"model.tied": True}, "budget": {"flops": 1e9}},
        "small": {"seeds": [7, 8], "axes": {"gamma": {"init.gamma": [0.5, 0.6]}}},
    }
    cpu = loaded(tmp_path, " size = cpu", scales=scales)
    assert (cpu.set["model.tied"], cpu.set["model.n_layers"]) == (True, 2)  # merged
    assert (cpu.budget.flops, cpu.budget.tokens) == (1e9, None)  # replaced
    small = loaded(tmp_path, "size=small", scales=scales)
    assert (small.seeds, list(small.axes["gamma"])) == ([7, 8], ["0.5", "0.6"])
    for overrides, told in (
        ([], "has the scales cpu, small; choose one, for example size=cpu"),
        (["size=smal"], "override 'size=smal': no such scale; did you mean 'small'?"),
    ):
        with pytest.raises(InputError, match="study.json") as caught:
            loaded(tmp_path, *overrides, scales=scales)
        assert told in str(caught.value)
    with pytest.raises(InputError, match="the study has one scale; leave it out"):
        loaded(tmp_path, "size=cpu")
    for wrong in ({}, [], {"cpu": 1}):
        with pytest.raises(InputError, match="scales: a mapping of names to what each changes"):
            loaded(tmp_path, scales=wrong)


RULE = {"widths": [16], "layers": 2, "head_dim": 8}
GRID = {"grid": {"optim.lr": [1, 2, 3]}, "seed": 5}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sizes": RULE | {"widths": [16, 16]}}, "test: sizes: a size stands twice"),
    ({"sizes": RULE | {"widths": [16, 20]}}, "test: sizes: head_dim=8 does not divide widths 20"),
    ({"sizes": RULE | {"layers": [1, 2]}}, "test: sizes: layers has 2 numbers for 1 widths"),
    ({"sizes": RULE | {"head": 1}}, "test: sizes: head: unknown key; did you mean 'head_dim'?"),
    ({"sizes": {"widths": [16], "layers": 2}}, "test: sizes.head_dim: is missing"),
    ({"sizes": {}}, "test: sizes: is empty; it needs one at least"),
    ({"axes": {}}, "test: axes: is empty; it needs one at least"),
    ({"axes": {"gamma": {}}}, "test: axes.gamma: is empty; it needs one at least"),
    ({"axes": {"gamma": {"init.gamma": []}}}, "test: axes.gamma: init.gamma: is empty; it needs one value at least"),
    ({"axes": {"gamma": {"init.gamma": [0.5, 0.5]}}}, "test: axes.gamma: init.gamma: a value stands twice"),
    ({"axes": {"gamma": {"init.gamma": 0.5}}}, "test: axes.gamma: write a list of values of one field {init.gamma: ["),
    ({"axes": {"gamma": {"init.gamma": [0.5], "optim.lr": [1]}}}, "or named levels {a: {init.gamma: 0.5}}"),
    ({"axes": {"data": {"data.store": ["runs/a", "runs/b"]}}},
     "axes.data: data.store: such values are no names for levels; name the levels: {a: {data.store: ...}}"),
    ({"axes": {"gamma": {"a/b": {}}}}, "axes.gamma: the key 'a/b' is no name: write 1 to 80 characters, none"),
    ({"name": "My Study"}, "test: name: write lower-case letters, digits, hyphens"),
    ({"axes": {"gamma": {"a": {"optim": {"lr": 1}}}}, "compare": {"axis": "gamma", "baseline": "a"}},
     "axes.gamma: 'optim' is no field; write its path with dots, for example optim.lr"),
    ({"set": {"optm.lr": 1}}, "set: 'optm.lr' is no field"),
    ({"set": {"train.steps": 1}}, "set: train.steps is the study's to set (budget and shares); leave it out"),
    ({"set": {"run.seed": 1}}, "set: run.seed is the study's to set (seeds and tune.seed); leave it out"),
    ({"set": {"train.eval_every": 1}}, "set: train.eval_every is the study's to set (milestones); leave it out"),
    ({"set": {"init.gamma": 0.7}}, "set: init.gamma is set by every level of gamma, which wins; leave it out of one"),
    ({"set": {}, "tune": {"grid": {"init.gamma": [1, 2, 3]}, "seed": 5}},
     "tune.grid: init.gamma is set by axes.gamma too; leave it out of one"),
    ({"set": {"optim.lr": 1}, "tune": GRID}, "tune.grid: optim.lr is set by set too; leave it out of one"),
    ({"axes": {"gamma": {"init.gamma": [0.5, 1.0]}, "b": {"x": {"init.gamma": 1.0}, "y": {}}}},
     "axes.gamma and axes.b both set init.gamma; leave it out of one"),
    ({"set": {}, "sizes": RULE, "axes": {"gamma": {"init.gamma": [0.5, 1.0]}, "deep": {"model.n_layers": [2, 8]}}},
     "sizes and axes.deep both set model.n_layers; leave it out of one"),
    ({"tune": {"grid": {"optim.lr": [3, 1, 2]}, "seed": 5}},
     "tune: grid.optim.lr: write the values in rising order, each once"),
    ({"tune": {"grid": {"optim.lr": [1, 2]}, "seed": 5}}, "tune: grid.optim.lr: write three values at least"),
    ({"tune": GRID | {"seed": 0}}, "tune.seed=0 is one of seeds; what was chosen on it may not be judged on it"),
    ({"budget": {}}, "budget: give one of tokens, tokens_per_parameter and flops"),
    ({"budget": {"tokens": 1e5, "flops": 1e9}}, "budget: give one of tokens, tokens_per_parameter and flops"),
    ({"shares": [0.5]}, "shares: each once, and 1.0 among them, the run that the others branch off"),
    ({"shares": [0.5, 0.5, 1.0]}, "shares: each once"),
    ({"seeds": []}, "seeds: is empty; it needs one at least"),
    ({"seeds": [1, 1]}, "seeds: one stands twice"),
    ({"optimum": "gama"}, "optimum=gama: no such axis; did you mean 'gamma'?"),
    ({"axes": {"law": {"a": {"init.law": "gpt2"}}}, "optimum": "law", "compare": {"axis": "law", "baseline": "a"}},
     "optimum=law: its level a is not one number"),
    ({"compare": {"axis": "gama", "baseline": "1.0"}}, "compare.axis=gama: no such axis; did you mean 'gamma'?"),
    ({"compare": {"axis": "gamma", "baseline": "2"}}, "compare.baseline=2: not a level of gamma"),
    ({"observe": ["sinks"]}, "observe.0: unknown value 'sinks'; did you mean 'sink'?"),
    ({"sedes": [1]}, "sedes: unknown key; did you mean 'seeds'?"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "told"), REFUSED, ids=[told[:60] for _, told in REFUSED])
def test_what_is_wrong_is_told_in_a_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        spec(None, **changes)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("init.gamma=0.7", "init.gamma is set by every level of gamma, which wins"),
        ("model.norm_eps=1e-5", "model.norm_eps is set by axes.setting of the study, which would win; change it there"),
        ("model.n_layers=9", "model.n_layers is set by sizes of the study, which would win; change it there"),
        ("train.steps=9", "set: train.steps is the study's to set (budget and shares)"),
        ("optim=1", "'optim' is no field"),
        ("seeds", "write section.key=value"),
        ("sedes=[1]", "override 'sedes=[1]': sedes: unknown key; did you mean 'seeds'?"),
    ],
)
def test_an_override_that_the_study_itself_would_undo_is_refused(tmp_path: Path, override: str, told: str) -> None:
    """Its own file may say what some levels change and others not; on the command line nobody would notice."""
    axes = {"gamma": {"init.gamma": [0.5, 1.0]}, "setting": {"usual": {}, "tiny": {"model.norm_eps": 1e-12}}}
    sizes = {"small": {}, "deep": {"model.n_layers": 4}}
    made = loaded(tmp_path, axes=axes, sizes=sizes, set={"model.norm_eps": 1e-5})
    assert made.set["model.norm_eps"] == 1e-5
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, override, axes=axes, sizes=sizes)
    assert override in str(caught.value)
    assert told in str(caught.value)


def test_a_file_that_is_no_study(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(InputError, match="a study is a mapping"):
        load_spec(tmp_path / "list.yaml")
