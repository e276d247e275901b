"""Saves beside the steps: the same bits, one at a time, and nothing that their thread meets is lost."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tiny import config, quiet, same, weights

from seedbed.api import fit
from seedbed.errors import GuardStop, InputError, SignalStop
from seedbed.train import loop, saver, writing
from seedbed.train.checkpoint import newest_checkpoint
from seedbed.train.metrics import read_metrics
from seedbed.train.retention import best, surplus

EVERY = ("train.checkpoint_every=2", "train.keep_checkpoints=9")


def stop_after_four(monkeypatch):
    real = loop.train_step

    def stopped(job):
        if job.step == 4:
            raise GuardStop("enough")
        return real(job)

    monkeypatch.setattr(loop, "train_step", stopped)


def checkpoints(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.fixture
def slow(monkeypatch):
    """Writing takes longer than many steps; counts how many writers there are at once."""
    real, writers, most = saver.write, [0], [0]

    def write(found, world):
        writers[0] += 1
        most[0] = max(most[0], writers[0])
        time.sleep(0.5)
        writers[0] -= 1
        return real(found, world)

    monkeypatch.setattr(saver, "write", write)
    return most


def test_the_same_bits_at_once_and_beside(tiny_store, tmp_path, slow):
    """Written long after the steps went on, each checkpoint is that of its own step."""
    for name in ("true", "false"):
        fit(config(tiny_store, tmp_path / name, *EVERY, f"train.async_checkpoints={name}"), quiet)
    assert checkpoints(tmp_path / "true") == checkpoints(tmp_path / "false")
    for step in (2, 4, 6):
        assert same(weights(tmp_path / "true", step), weights(tmp_path / "false", step))
    assert not same(weights(tmp_path / "true", 2), weights(tmp_path / "true", 4))
    assert slow == [1]  # one at a time
    rows = {
        name: [row for row in read_metrics(tmp_path / name) if row["kind"] == "checkpoint"]
        for name in ("true", "false")
    }
    assert [row["step"] for row in rows["true"]] == [row["step"] for row in rows["false"]] == [2, 4, 6]
    assert all(row["written_seconds"] > 0.5 for row in rows["true"] + rows["false"])
    assert all(row["blocked_seconds"] > 0.5 for row in rows["false"])
    assert all(row["bytes"] == rows["true"][0]["bytes"] > 100_000 for row in rows["true"])


def test_training_goes_on_while_one_is_written(tiny_store, tmp_path, monkeypatch):
    """The thread waits for a step that comes after the save: were it written at once, it would wait for ever."""
    stepped, real_write, real_step = threading.Event(), saver.write, loop.train_step

    def write(found, world):
        assert found.step == 6 or stepped.wait(30)
        return real_write(found, world)

    def step(job):
        row = real_step(job)
        if job.step == 4:
            stepped.set()
        return row

    monkeypatch.setattr(saver, "write", write)
    monkeypatch.setattr(loop, "train_step", step)
    fit(config(tiny_store, tmp_path / "r", "train.checkpoint_every=3"), quiet)
    assert checkpoints(tmp_path / "r") == ["step_00000003", "step_00000006"]


@pytest.mark.parametrize("beside", ["true", "false"])
def test_an_error_stops_the_run(tiny_store, tmp_path, monkeypatch, beside):
    real = writing.save_file

    def full(tensors, file):
        if "step_00000004" in str(file):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(tensors, file)

    monkeypatch.setattr(writing, "save_file", full)
    made, real_step = [], loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda job: (made.append(job.step), time.sleep(0.3), real_step(job))[-1])
    with pytest.raises(InputError, match=r"step_00000004: a checkpoint needs .* MB free; make room.*step_00000002$"):
        fit(config(tiny_store, tmp_path / "r", *EVERY, f"train.async_checkpoints={beside}"), quiet)
    assert made == [0, 1, 2, 3] + [4] * (beside == "true")  # at the next step
    assert checkpoints(tmp_path / "r") == ["step_00000002"]


def test_an_error_of_the_last_save_is_not_lost(tiny_store, tmp_path, monkeypatch, slow):
    def refused(tensors, file):
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(writing, "save_file", refused)
    with pytest.raises(InputError, match=r"step_00000006: cannot be written .*Permission denied.* no checkpoint yet"):
        fit(config(tiny_store, tmp_path / "r"), quiet)


def test_a_signal_waits_for_the_save_on_its_way(tiny_store, tmp_path, monkeypatch, slow):
    real = loop.train_step

    def interrupted(job):
        if job.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(job)

    monkeypatch.setattr(loop, "train_step", interrupted)
    with pytest.raises(SignalStop, match="saved .*step_00000003 after step 3"):
        fit(config(tiny_store, tmp_path / "r", *EVERY), quiet)
    assert checkpoints(tmp_path / "r") == ["step_00000002", "step_00000003"]


def test_a_stopped_run_keeps_the_save_on_its_way(tiny_store, tmp_path, monkeypatch, slow):
    """And names it, with its row of metrics."""
    stop_after_four(monkeypatch)
    with pytest.raises(GuardStop, match=r"enough; the last checkpoint is .*step_00000004$"):
        fit(config(tiny_store, tmp_path / "r", *EVERY), quiet)
    assert [row["step"] for row in read_metrics(tmp_path / "r") if row["kind"] == "checkpoint"] == [2, 4]


def test_a_stopped_run_tells_of_the_save_that_failed_too(tiny_store, tmp_path, monkeypatch, slow):
    real = saver.write

    def refused(found, world):
        if found.step == 4:
            raise InputError("no room")
        return real(found, world)

    stop_after_four(monkeypatch)
    monkeypatch.setattr(saver, "write", refused)
    monkeypatch.setattr(saver.Saver, "poll", lambda *_: None)
    told = pytest.warns(UserWarning, match="step_00000004: was not saved: no room")
    with told, pytest.raises(GuardStop, match=r"enough; the last checkpoint is .*step_00000002$"):
        fit(config(tiny_store, tmp_path / "r", *EVERY), quiet)


def test_the_memory_of_copies_is_given_back(tiny_store, tmp_path, monkeypatch):
    closed, real = [], writing.DefaultStager.close
    monkeypatch.setattr(writing.DefaultStager, "close", lambda self: (closed.append(self), real(self)))
    fit(config(tiny_store, tmp_path / "r"), quiet)
    assert len(closed) == 1


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from tiny import config, quiet
from seedbed.api import fit
from seedbed.train import writing
real = writing.save_file
def save(tensors, file):
    real(tensors, file)
    if "step_00000004" in str(file) and file.name == {name!r}:
        os.kill(os.getpid(), signal.SIGKILL)
writing.save_file = save
fit(config(Path({store!r}), Path({run!r}), "train.checkpoint_every=2", "train.keep_checkpoints=9"), quiet)
"""


def test_killed_inside_a_save(tiny_store, tmp_path):
    """The run goes on from the checkpoint before it, to the same weights as one that was left alone."""
    tests = os.path.dirname(os.path.dirname(__file__))
    run = tmp_path / "r"
    script = KILLED.format(tests=tests, name="optimizer.safetensors", store=str(tiny_store), run=str(run))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    path, notes = newest_checkpoint(run)
    assert path is not None
    assert path.name == "step_00000002"
    assert notes == []
    assert len(list((run / "checkpoints").glob(".partial-*"))) == 1
    for name in (run, tmp_path / "alone"):
        fit(config(tiny_store, name, *EVERY), quiet)
    assert checkpoints(run) == checkpoints(tmp_path / "alone")
    assert same(weights(run, 6), weights(tmp_path / "alone", 6))


def test_no_thread_outlives_its_run(tiny_store, tmp_path, monkeypatch):
    """One that still drops its copy while the interpreter goes down ends the process by SIGABRT."""
    real = saver._settle

    def lingering(written, work):
        real(written, work)
        time.sleep(0.3)

    monkeypatch.setattr(saver, "_settle", lingering)
    fit(config(tiny_store, tmp_path / "run", "train.steps=2"), quiet)
    assert "saver" not in [thread.name for thread in threading.enumerate()]


def test_the_best_one_stays(tiny_store, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 1.0, 2.0, 4.0, 5.0])
    heldout = {"bits_per_byte": 1.0, "tokens": 1, "bytes": 1}
    monkeypatch.setattr("seedbed.api.evaluate", lambda *_: {"nats_per_token": next(losses), **heldout})
    told = ["train.checkpoint_every=1", "train.keep_checkpoints=2"]
    fit(config(tiny_store, tmp_path / "best", *told, "train.eval_every=1"), quiet)
    assert [name[-1] for name in checkpoints(tmp_path / "best")] == ["3", "5", "6"]
    newest = tmp_path / "best" / "checkpoints" / "step_00000006"
    assert surplus(tmp_path / "best", 1, newest, keep_best=True) == [newest.with_name("step_00000005")]
    assert len(surplus(tmp_path / "best", 1, newest, keep_best=False)) == 2
    (newest.with_name("step_00000003") / "state.json").write_text("{")
    assert best([newest, newest.with_name("step_00000003")]) == newest
    losses = iter([3.0, 1.0])
    fit(config(tiny_store, tmp_path / "rare", *told, "train.eval_every=5"), quiet)  # at 5 and 6
    assert [name[-1] for name in checkpoints(tmp_path / "rare")] == ["5", "6"]
    losses = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    fit(config(tiny_store, tmp_path / "off", *told, "train.eval_every=1", "train.keep_best=false"), quiet)
    assert [name[-1] for name in checkpoints(tmp_path / "off")] == ["5", "6"]
