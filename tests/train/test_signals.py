"""When a signal comes, and how often."""

import os
import signal

import pytest
from tiny import config, quiet, same, weights
from torch._dynamo.exc import BackendCompilerFailed

from seedbed import api
from seedbed.errors import SignalStop
from seedbed.train import loop, signals
from seedbed.train.signals import catch_signals


def test_an_echo_is_the_same_request_and_a_second_signal_stops_at_once(monkeypatch):
    with catch_signals() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.signum == signal.SIGTERM
        monkeypatch.setattr(signals, "ECHO_S", 0.0)
        with pytest.raises(SignalStop, match="stopped at once by a second signal, without saving") as stop:
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.value.signum == signal.SIGINT
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_during_an_evaluation_saves_after_the_next_step(tiny_store, tmp_path, monkeypatch):
    real = api.evaluate

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    chosen = config(tiny_store, tmp_path / "run", "train.eval_every=2")
    with monkeypatch.context() as patch:
        patch.setattr(api, "evaluate", interrupted)
        with pytest.raises(SignalStop, match=r"saved .*step_00000003 after step 3"):
            api.fit(chosen, quiet)
    assert [row["step"] for row in api.Run(tmp_path / "run").metrics if row["kind"] == "eval"] == [2]
    api.fit(chosen, quiet)
    api.fit(config(tiny_store, tmp_path / "whole", "train.eval_every=2"), quiet)
    assert same(weights(tmp_path / "run", 6), weights(tmp_path / "whole", 6))


def test_a_signal_during_a_save_leaves_that_checkpoint_and_saves_again(tiny_store, tmp_path, monkeypatch):
    real, sent = os.fsync, []

    def interrupted(descriptor):
        if "checkpoints" in os.readlink(f"/proc/self/fd/{descriptor}") and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    chosen = ("train.steps=500", "train.checkpoint_every=100", "train.keep_checkpoints=9")
    with pytest.raises(SignalStop, match=r"saved .* after step 1\d\d; ") as stop:
        api.fit(config(tiny_store, tmp_path / "run", *chosen), quiet)
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step_*"))
    assert saved[0] == "step_00000100"
    assert len(saved) == 2
    assert saved[1] in str(stop.value)


def test_a_signal_that_ends_the_compiler_ends_the_run_in_one_line(tiny_store, tmp_path, monkeypatch):
    def killed(*_):
        raise BackendCompilerFailed(killed, RuntimeError("g++ was interrupted"), None)

    monkeypatch.setattr(loop, "train_step", killed)
    with pytest.raises(BackendCompilerFailed):
        api.fit(config(tiny_store, tmp_path / "broken"), quiet)

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        killed()

    monkeypatch.setattr(loop, "train_step", interrupted)
    with pytest.raises(
        SignalStop, match="^stopped while the model was compiled; it has no checkpoint yet, and"
    ) as stop:
        api.fit(config(tiny_store, tmp_path / "stopped"), quiet)
    assert stop.value.signum == signal.SIGINT
