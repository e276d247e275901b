"""Paths in a study: whole once it is read, whatever the working directory."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from studies import tree

from seedbed.errors import InputError
from seedbed.study.plan import Plan
from seedbed.study.run import read_study, study_folder
from seedbed.study.spec import load_spec


@pytest.mark.parametrize("place", ["set", "axes", "base", "override"])
def test_a_study_is_the_same_from_another_working_directory(
    tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    shutil.copytree(tiny_store, tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    study: dict[str, Any] = tree(Path("store"))
    if place != "set":
        del study["set"]["data.store"]
    if place == "axes":
        study["axes"] = {"gamma": {"0.5": {"data.store": "store"}, "1": {"data.store": "./store", "init.gamma": 0.6}}}
    if place == "base":
        Path("base.yaml").write_text("data: {store: store}\ninit: {gamma: 0.7}\n")
        study["base"] = "base.yaml"
    Path("study.json").write_text(json.dumps(study))
    spec = load_spec("study.json", ["data.store=store"] if place == "override" else [])
    with study_folder(tmp_path / "folder", spec):
        keys = [trial.key for trial in Plan(spec).trials({})]
    monkeypatch.chdir("elsewhere")
    again = read_study(tmp_path / "folder")
    assert again == spec
    assert [trial.key for trial in Plan(again).trials({})] == keys
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(
        InputError, match=rf"0\.5: data\.store={tmp_path}/store: no token store there; .* bring it back"
    ):
        Plan(again)


def test_what_is_not_there_stays_as_it_is_written(tmp_path: Path) -> None:
    """What is missing is named, and where it was looked for."""
    (tmp_path / "study.json").write_text(json.dumps(tree(Path("gone"), set={"train.init_from": "gone"})))
    spec = load_spec(tmp_path / "study.json")
    assert (spec.set["data.store"], spec.set["train.init_from"]) == ("gone", "gone")
    with pytest.raises(InputError, match=r"data\.store=gone: no token store there from /"):
        Plan(spec)
