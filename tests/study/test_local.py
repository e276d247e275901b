"""Runs in processes of their own: what ends them, what is tried again, what is told, and what stops a study."""

import errno
import os
import signal
import threading
from pathlib import Path

import pytest
import tasks
from tasks import one_after_another, wait_for

from seedbed.errors import InputError, SignalStop
from seedbed.study import claim, local, memory
from seedbed.study.claim import claimed, is_claimed, log_of
from seedbed.study.local import local_engine
from seedbed.study.outcome import read_outcome
from seedbed.study.process import start


@pytest.fixture
def carry_out(tiny_store, tmp_path, monkeypatch):
    """Does runs, ``workers`` at a time; gives what ended, in order, with reasons, and what was said."""
    monkeypatch.chdir(tmp_path)

    def call(workers: int, **trains):
        ended, said = [], []
        todo = one_after_another(*(tasks.task(tiny_store, Path("."), name, train) for name, train in trains.items()))
        try:
            local_engine(workers, said.append)(todo, lambda task, reason: ended.append((task.key, reason)))
        finally:
            call.ended, call.said = ended, said
        return dict(ended), said

    return call


def test_runs_have_processes_of_their_own_and_logs(carry_out):
    """Relative to the folder of the command; threads as the task says."""
    ended, said = carry_out(2, a=tasks.note, b=tasks.note)
    assert (ended, said) == ({"a": None, "b": None}, [])
    done = [Path(name, "done").read_text().split() for name in "ab"]
    assert len({int(pid) for pid, _ in done} | {os.getpid()}) == 3
    assert {threads for _, threads in done} == {"1"}
    assert log_of("a").read_text() == "trained\n"
    outcome = read_outcome(Path("a"))
    assert outcome is not None
    assert (outcome.status, outcome.threads) == ("finished", 1)


def test_a_finished_run_is_not_repeated_and_a_diverged_one_has_an_outcome(carry_out):
    carry_out(1, a=tasks.note, b=tasks.diverge)
    ended, _ = carry_out(1, a=tasks.die, b=tasks.die)
    assert ended == {"a": None, "b": None}
    assert len(Path("a/done").read_text().splitlines()) == 1
    outcome = read_outcome(Path("b"))
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("diverged", "step 3: the loss is not finite")


def test_what_goes_wrong_is_told_in_a_line_and_the_others_go_on(carry_out):
    ended, _ = carry_out(2, a=tasks.refuse, b=tasks.stumble, c=tasks.note)
    assert ended == {"a": "store: bad very", "b": "ZeroDivisionError: a mistake of ours", "c": None}
    assert "in stumble" in log_of("b").read_text()


def test_a_killed_run_is_tried_once_more(carry_out):
    ended, said = carry_out(2, a=tasks.die_once, b=tasks.note)
    assert ended == {"a": None, "b": None}
    assert said == ["arm a: killed by SIGKILL, perhaps for want of memory; it is tried once more"]
    ended, _ = carry_out(1, c=tasks.die, d=tasks.crash)
    assert ended == {"c": "killed by SIGKILL, perhaps for want of memory, twice", "d": "ended by SIGSEGV, twice"}
    assert len(Path("c/done").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("full", "told"),
    [
        (tasks.fill_the_disk, "OSError: .* No space left on device: 'here'; make room, and run the same command again"),
        (tasks.fill_the_disk_in_a_checkpoint, "checkpoint: needs 5 MB, its disk has 1 MB"),
    ],
)
def test_a_full_disk_stops_the_study_after_the_others_have_saved(full, told, carry_out, tmp_path):
    def fill_when_the_other_has_begun():
        wait_for(tmp_path / "b" / "began")
        holder.__exit__(None, None, None)

    holder = claimed("a")  # until then a waits for it
    holder.__enter__()
    threading.Thread(target=fill_when_the_other_has_begun).start()
    with pytest.raises(InputError, match=f"^arm a: {told}$"):
        carry_out(2, a=full, b=tasks.until_told, c=tasks.note)
    assert (tmp_path / "b" / "saved").exists()
    assert not (tmp_path / "c").exists()
    assert carry_out.ended == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_study_after_its_runs_have_saved(signum, carry_out, tmp_path):
    def send():
        wait_for(tmp_path / "a" / "began", tmp_path / "b" / "began")
        os.kill(os.getpid(), signum)

    threading.Thread(target=send).start()
    with pytest.raises(SignalStop, match="the same command goes on") as caught:
        carry_out(2, a=tasks.until_told, b=tasks.until_told, c=tasks.note)
    assert caught.value.signum == signum
    assert (tmp_path / "a" / "saved").exists()
    assert (tmp_path / "b" / "saved").exists()
    assert carry_out.ended == []


def test_what_the_caller_raises_ends_the_runs(tiny_store, tmp_path):
    def fail(_task, _reason):
        wait_for(tmp_path / "b" / "began")
        raise ZeroDivisionError

    todo = one_after_another(
        tasks.task(tiny_store, tmp_path, "a", tasks.note), tasks.task(tiny_store, tmp_path, "b", tasks.until_told)
    )
    with pytest.raises(ZeroDivisionError):
        local_engine(2, print)(todo, fail)
    assert (tmp_path / "b" / "saved").exists()


def test_a_run_ends_with_its_parent(tiny_store, tmp_path, monkeypatch):
    """What tells the parent's end is closed here as the system does it when the parent is killed."""
    running = start(tasks.task(tiny_store, tmp_path, "a", tasks.until_told), str(tmp_path))
    wait_for(tmp_path / "a" / "began")
    running.process._popen.finalizer()  # pyright: ignore
    wait_for(tmp_path / "a" / "saved")
    assert running.end().signum == signal.SIGTERM


def test_a_run_waits_for_another_process_that_does_it(tiny_store, tmp_path):
    with claimed(tmp_path / "a"):
        assert is_claimed(tmp_path / "a")
        running = start(tasks.task(tiny_store, tmp_path, "a", tasks.note), str(tmp_path))
        assert not running.said.poll(0.5)
    assert running.end().reason is None
    assert not is_claimed(tmp_path / "a")
    assert not is_claimed(tmp_path / "nothing")


def test_runs_wait_for_memory(carry_out, monkeypatch):
    """One at a time where a second does not fit, and one in any case."""
    monkeypatch.setattr(local, "fits", lambda need, running: False)
    ended, said = carry_out(3, a=tasks.note, b=tasks.note, c=tasks.note)
    assert list(ended) == ["a", "b", "c"]
    assert len(said) == 1
    assert "memory is short: a run needs 60" in said[0]


def test_each_run_sees_a_gpu_of_its_own_where_there_are_as_many(carry_out, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5e")
    monkeypatch.setattr(local, "gpus", lambda: ["3", "GPU-5e"])
    ended, _ = carry_out(2, a=tasks.see, b=tasks.see, c=tasks.see)
    assert ended == {"a": None, "b": None, "c": None}
    assert {Path(name, "gpu").read_text() for name in "ab"} == {"3", "GPU-5e"}
    assert Path("c/gpu").read_text() in ("3", "GPU-5e")
    monkeypatch.setattr(local, "gpus", list)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert carry_out(1, d=tasks.see)[0] == {"d": None}


def test_memory_that_running_processes_will_still_take_is_not_free(monkeypatch):
    monkeypatch.setattr(memory, "available_mb", lambda: 5000.0)
    monkeypatch.setattr(memory, "resident_mb", {1: 300.0, 2: 1500.0}.get)
    assert memory.fits(4500, {})
    assert not memory.fits(4501, {})
    assert memory.fits(3800, {1: 1000.0, 2: 1000.0})  # 700 MB are still to come
    assert not memory.fits(3801, {1: 1000.0, 2: 1000.0})
    monkeypatch.setattr(memory, "available_mb", lambda: None)
    assert memory.fits(1e9, {})


def test_memory_is_what_machine_and_control_groups_leave(monkeypatch):
    monkeypatch.setattr(memory, "memory_left_mb", lambda: 123.0)
    assert memory.available_mb() == 123.0
    monkeypatch.setattr(memory, "memory_left_mb", lambda: 1e9)
    free = memory.available_mb()
    assert free is not None and 0 < free < 1e9


def test_memory_is_read_from_the_system():
    free = memory.available_mb()
    if free is None:
        pytest.skip("this system does not tell")
    assert free > 0
    block = bytearray(200 * 2**20)
    assert memory.resident_mb(os.getpid()) > 200
    assert len(block) and memory.resident_mb(2**22 + 1) == 0.0


def test_expected_memory_grows_with_the_model(tiny_store, tmp_path):
    small, large = (
        memory.expected_mb(tasks.task(tiny_store, tmp_path, "a", tasks.note, *more))
        for more in ([], ["model.d_model=1024", "model.ffn.d_ff=4096"])
    )
    assert memory.BARE_MB < small < memory.BARE_MB + 10
    parameters = 2 * 1024 * 3 * 4096  # of the MLPs alone
    assert large - memory.BARE_MB > 16 * parameters / 2**20  # weights, gradients, two moments


def test_whether_a_run_is_done_is_asked_as_network_file_systems_take_it(tmp_path, monkeypatch):
    """NFS locks alone what is open for writing (flock(2)), and says EBADF of anything else."""
    lock = claim.fcntl.flock

    def as_nfs(file, how):
        if how & claim.fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, "not open for writing")
        lock(file, how)

    monkeypatch.setattr(claim.fcntl, "flock", as_nfs)
    with claimed(tmp_path / "a"):
        assert is_claimed(tmp_path / "a")
    assert not is_claimed(tmp_path / "a")
