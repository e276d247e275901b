"""Interrupted, resumed, refused: a run goes on exactly, or says why not and changes nothing."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from stores import Text, make_store
from tiny import TINY, config, quiet, same, sentences, weights

from seedbed.api import fit, load
from seedbed.errors import InputError, SignalStop
from seedbed.files import atomic
from seedbed.files.atomic import folder_damage
from seedbed.files.steps import step_folders
from seedbed.train import loop
from seedbed.train.metrics import read_metrics
from seedbed.train.whole import average, merge


def learned(run: Path) -> list[dict]:
    """The metrics without what a clock made."""
    rows = [row for row in read_metrics(run) if row["kind"] != "checkpoint"]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "seconds")} for row in rows]


class Killed(Exception):
    pass


def kill_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From now on a training dies, without any clean-up of its own, once it has made so many steps."""
    real = loop.train_step

    def dying(job):
        if job.step == step:
            raise Killed
        return real(job)

    monkeypatch.setattr(loop, "train_step", dying)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_an_interrupted_run_equals_an_uninterrupted_one_bit_for_bit(tiny_store, tmp_path, monkeypatch, optimizer):
    common = [f"optim.name={optimizer}", "train.checkpoint_every=2", "train.eval_every=2", "train.keep_checkpoints=9"]
    fit(config(tiny_store, tmp_path / "a", *common), quiet)
    for death in (3, 5):  # once, then again further on
        with monkeypatch.context() as patch:
            kill_after(patch, death)
            with pytest.raises(Killed):
                fit(config(tiny_store, tmp_path / "b", *common), quiet)
        assert read_metrics(tmp_path / "b")[-1]["step"] >= death - 1
    fit(config(tiny_store, tmp_path / "b", *common), quiet)
    assert same(weights(tmp_path / "a", 6), weights(tmp_path / "b", 6))
    assert learned(tmp_path / "a") == learned(tmp_path / "b")
    optimizer_state = [
        load_file(tmp_path / run / "checkpoints/step_00000006/optimizer.safetensors") for run in ("a", "b")
    ]
    assert same(*optimizer_state)


def test_what_a_killed_removal_left_goes_even_where_nothing_more_is_saved(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    (tmp_path / "r" / "checkpoints" / ".partial-1-step_00000003").mkdir()
    fit(config(tiny_store, tmp_path / "r"), quiet)
    assert [entry.name for entry in (tmp_path / "r" / "checkpoints").iterdir()] == ["step_00000006"]


def test_a_run_goes_on_from_what_a_killed_replacement_moved_away(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    folder = tmp_path / "r" / "checkpoints"
    (folder / "step_00000006").rename(folder / ".partial-far-away-2-1-old-step_00000006")
    said = []
    fit(config(tiny_store, tmp_path / "r"), said.append)
    assert [entry.name for entry in folder.iterdir()] == ["step_00000006"]
    assert any("has made all its 6 steps" in line for line in said)


def test_what_cannot_be_removed_stops_no_run(tiny_store, tmp_path, monkeypatch):
    """As on NFS, where a folder with a file that is open elsewhere cannot be removed."""
    real = shutil.rmtree

    def refused(path, ignore_errors=False):
        if "gone-" not in str(path):
            real(path, ignore_errors)
        elif not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr(atomic.shutil, "rmtree", refused)
    more = ["train.keep_checkpoints=1", "optim.schedule.kind=constant"]
    with pytest.warns(UserWarning, match=r"gone-step_00000002: .*cannot be removed \(Directory not empty\)"):
        fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", *more), quiet)
    with pytest.warns(UserWarning, match="gone-step_00000002"):
        run = fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.steps=8", *more), quiet)
    assert run.summary.steps == 8
    assert [path.name for path in step_folders(tmp_path / "r")] == ["step_00000008"]
    monkeypatch.undo()
    fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=2", "train.steps=8", *more), quiet)
    assert [entry.name for entry in (tmp_path / "r" / "checkpoints").iterdir()] == ["step_00000008"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_checkpoint_is_not_taken_for_a_run(tiny_store, tmp_path, fresh):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    newest = tmp_path / "r" / "checkpoints" / "step_00000006"
    merge(newest, tmp_path / "whole")
    average([newest, newest], tmp_path / "mean")
    shutil.copytree(newest, tmp_path / "uncommitted")
    (tmp_path / "uncommitted" / "commit.json").unlink()
    places = [newest, newest.parent, newest.parent / "new", newest / "new"]
    before = sorted(tmp_path.rglob("*"))
    for place in [*places, *(tmp_path / name for name in ("whole", "mean", "uncommitted"))]:
        with pytest.raises(InputError, match=r"is a checkpoint, .*set train\.init_from=.*RUN/checkpoints/step_N"):
            fit(config(tiny_store, place), quiet, fresh=fresh)
    assert sorted(tmp_path.rglob("*")) == before
    assert folder_damage(newest) is None
    (tmp_path / "config.yaml").write_text("{}")  # no run: people name folders as they like
    fit(config(tiny_store, tmp_path / "checkpoints" / "mine"), quiet)


def test_a_run_goes_on_from_a_merged_checkpoint_put_in_place(tiny_store, tmp_path):
    constant = "optim.schedule.kind=constant"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    newest = tmp_path / "r" / "checkpoints" / "step_00000006"
    merge(newest, newest)
    assert fit(config(tiny_store, tmp_path / "r", constant, "train.steps=8"), quiet).summary.steps == 8


def test_an_extended_run_goes_on(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant"), quiet)
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant", "train.steps=8"), quiet)
    fit(config(tiny_store, tmp_path / "long", "optim.schedule.kind=constant", "train.steps=8"), quiet)
    assert same(weights(tmp_path / "r", 8), weights(tmp_path / "long", 8))
    with pytest.raises(InputError, match="has made 8 steps"):
        fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant", "train.steps=7"), quiet)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tiny_store, tmp_path, monkeypatch, signum):  # case 40
    real = loop.train_step

    def interrupted(job):
        if job.step == 3:
            os.kill(os.getpid(), signum)
        return real(job)

    fit(config(tiny_store, tmp_path / "a"), quiet)
    before = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        with pytest.raises(SignalStop, match="after step 4") as stop:
            fit(config(tiny_store, tmp_path / "b"), quiet)
    assert stop.value.signum == signum
    assert signal.getsignal(signum) is before
    fit(config(tiny_store, tmp_path / "b"), quiet)
    assert same(weights(tmp_path / "a", 6), weights(tmp_path / "b", 6))


def test_resuming_refuses_another_configuration_with_the_difference(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    saved = (tmp_path / "r" / "config.yaml").read_bytes()
    with pytest.raises(InputError, match=r"optim\.lr is 0\.002 there, 0\.1 here"):
        fit(config(tiny_store, tmp_path / "r", "optim.lr=0.1"), quiet)
    assert (tmp_path / "r" / "config.yaml").read_bytes() == saved
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"not a run and not empty \(thesis\.tex"):  # case 42
        fit(config(tiny_store, tmp_path / "other"), quiet)
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_run_and_its_store_are_moved_and_go_on(tiny_store, tmp_path):
    shutil.copytree(tiny_store, tmp_path / "store")
    constant = "optim.schedule.kind=constant"
    fit(config(tmp_path / "store", tmp_path / "r", constant), quiet)
    shutil.move(tmp_path / "r", tmp_path / "s")
    shutil.move(tmp_path / "store", tmp_path / "elsewhere")
    said = []
    run = fit(config(tmp_path / "elsewhere", tmp_path / "s", constant, "train.steps=7"), said.append)
    assert run.summary.steps == 7
    assert "train.steps was 6: from here on the schedule is that of 7 steps" in said


def test_a_store_with_other_content_is_refused_on_resuming(tiny_store, tmp_path):
    from seedbed.data.store import Store

    constant = "optim.schedule.kind=constant"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    documents = [Text(str(i), text) for i, text in enumerate(sentences(60, seed=5))]
    make_store(documents, Store(tiny_store).tokenizer(), tmp_path / "other", seq_len=32)
    with pytest.raises(InputError, match="data position"):
        fit(config(tmp_path / "other", tmp_path / "r", constant, "train.steps=8"), quiet)


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b"5\n", b"\xff\n", b'{"step": "x"}\n', b"[]\n"])
def test_damaged_metrics_do_not_stop_a_run(tiny_store, tmp_path, damage):
    constant = "optim.schedule.kind=constant"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    with open(tmp_path / "r" / "metrics.jsonl", "ab") as file:
        file.write(damage)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl:9: not a row"):
        run = fit(config(tiny_store, tmp_path / "r", constant, "train.steps=7"), quiet)
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6, 7]


def test_rows_behind_a_damaged_one_stay(tiny_store, tmp_path):
    constant, file = "optim.schedule.kind=constant", tmp_path / "r" / "metrics.jsonl"
    fit(config(tiny_store, tmp_path / "r", constant), quiet)
    lines = file.read_bytes().split(b"\n")
    lines[2] = lines[3] = b"\0" * 40
    file.write_bytes(b"\n".join(lines))
    with pytest.warns(UserWarning, match=r"metrics\.jsonl:3: not a row of metrics, left out \(and 1 more lines\)"):
        run = fit(config(tiny_store, tmp_path / "r", constant, "train.steps=7"), quiet)
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 5, 6, 7]
    kept = file.with_name("metrics.jsonl.damaged").read_bytes()
    assert kept == b"\n".join(lines)
    fit(config(tiny_store, tmp_path / "r", constant, "train.steps=8"), quiet)  # not again
    assert file.with_name("metrics.jsonl.damaged").read_bytes() == kept


def test_two_processes_do_not_share_a_run(tiny_store, tmp_path):
    from seedbed.files.lock import folder_lock

    program = (
        "import sys\nfrom seedbed import Config, fit\nfrom seedbed.errors import InputError\n"
        "try:\n    fit(Config.load(None, sys.argv[1:]))\nexcept InputError as error:\n    print(error)\n"
    )
    with folder_lock(tmp_path / "r"):
        overrides = [*TINY, f"data.store={tiny_store}", f"run.dir={tmp_path / 'r'}"]
        out = subprocess.run([sys.executable, "-c", program, *overrides], capture_output=True, text=True, check=True)
    assert f"in use by process {os.getpid()}" in out.stdout
    assert not (tmp_path / "r").exists()  # nothing came of either


@pytest.mark.parametrize("wrong", ["train.init_from=nowhere", "init.law=normal init.std=-1.0"])
def test_a_start_that_is_refused_claims_no_folder(tiny_store, tmp_path, wrong):
    with pytest.raises(InputError):
        fit(config(tiny_store, tmp_path / "r", *wrong.split()), quiet)
    assert not (tmp_path / "r").exists()


def test_only_damaged_checkpoints_stop_the_run_instead_of_starting_over(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "optim.schedule.kind=constant"), quiet)
    rows = (tmp_path / "r" / "metrics.jsonl").read_bytes()
    (tmp_path / "r" / "checkpoints" / "step_00000006" / "state.json").unlink()
    more = ["optim.schedule.kind=constant", "train.steps=8"]
    with pytest.raises(InputError, match=r"step_00000006: passed over: state.json is missing; put one back"):
        fit(config(tiny_store, tmp_path / "r", *more), quiet)
    assert (tmp_path / "r" / "metrics.jsonl").read_bytes() == rows
    assert "steps: 6" in (tmp_path / "r" / "config.yaml").read_text()
    assert fit(config(tiny_store, tmp_path / "r", *more), quiet, fresh=True).summary.steps == 8


def test_fresh_removes_a_run_and_nothing_else(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r"), quiet)
    run = fit(config(tiny_store, tmp_path / "r", "optim.lr=1e-4"), quiet, fresh=True)
    assert run.config.optim.lr == 1e-4
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    again = [f"train.init_from={tmp_path / 'r'}", "train.steps=4"]
    assert fit(config(tiny_store, tmp_path / "r", *again), quiet, fresh=True).summary.steps == 4  # from itself
    with pytest.raises(InputError, match="nowhere"):
        fit(config(tiny_store, tmp_path / "r", "train.init_from=nowhere"), quiet, fresh=True)
    assert (tmp_path / "r" / "checkpoints" / "step_00000004").is_dir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not a run"):
        fit(config(tiny_store, tmp_path / "other"), quiet, fresh=True)
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_damaged_checkpoint_given_by_its_path_is_refused(tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=3"), quiet)
    newest = tmp_path / "r" / "checkpoints" / "step_00000006"
    weights_file = newest / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"model\.safetensors has .* bytes instead of"):
        load(newest)
    with pytest.warns(UserWarning, match="step_00000006: passed over"):
        load(tmp_path / "r")
    (newest / "commit.json").unlink()
    with pytest.raises(InputError, match=r"commit\.json is missing"):
        load(newest)
