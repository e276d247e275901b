"""One fault at a time: signals, damaged files, clocks, disks. The run ends as one that nothing disturbed."""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import faults
import pytest
from disturbed import CHANGES, SECONDS, STEPS, SYNC, ends_with, log_of, start
from launch import end
from promises import check_finished, check_stopped, last_step, newest, read_whole, rows, step_of, whole_checkpoints


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.chaos)])
def test_a_signal_saves_what_was_done(signum, times, training, whole, tmp_path):
    """At a random moment, and right before a random change to the disk: in evaluation, in a save, anywhere."""
    rng, run, saved = random.Random(signum), tmp_path / "run", 0
    for number in range(times):
        before = newest(run)
        if number % 2:
            process = start(training, run)
            process.join(rng.uniform(0, SECONDS))
            os.kill(process.pid, signum)
            code = end(process)
        else:
            code = end(start(training, run, partial(faults.signals_at_change, rng.randrange(18, CHANGES), signum)))
        said = log_of(run).read_text()
        if code == 0:
            check_finished(run, whole)
            run = tmp_path / str(number)
            continue
        assert code in (128 + signum, -signum), said  # the latter before and after training, where nothing can be lost
        check_stopped(run, whole, before)
        if "the same command resumes it" in said:
            assert f"after step {newest(run)};" in said
            assert last_step(run, "train") == newest(run)
            saved += 1
    assert saved
    ends_with(0, training, run)
    check_finished(run, whole)


def test_a_second_signal_stops_at_once(plain, whole, tmp_path):
    """Inside a save."""
    said = ends_with(143, [*plain, SYNC], tmp_path / "run", partial(faults.signals_at_change, 35, signal.SIGTERM, 2.1))
    assert "stopped at once by a second signal, without saving" in said
    check_stopped(tmp_path / "run", whole, 3)
    ends_with(0, plain, tmp_path / "run")
    check_finished(tmp_path / "run", whole)


def test_a_damaged_checkpoint_costs_the_way_back_to_the_one_before(training, whole, tmp_path):
    rng, run = random.Random(0), tmp_path / "run"
    for damage in faults.DAMAGES:
        end(start(training, run, partial(faults.kill_at_change, 60)))
        new, old = whole_checkpoints(run)[:2]
        check_stopped(run, whole, step_of(new))
        victim = rng.choice(sorted(path for path in new.rglob("*") if path.is_file()))
        damage(victim)
        assert newest(run) == step_of(old)
        assert f"{new}: passed over: " in ends_with(-signal.SIGKILL, training, run, partial(faults.kill_at_change, 30))
        check_stopped(run, whole, step_of(old))
    ends_with(0, training, run)
    check_finished(run, whole)


def test_clocks_that_jump(training, whole, tmp_path):
    """The time of day back and forth, a lock from the future; then a machine that sleeps for a day."""
    run, began = tmp_path / "run", time.monotonic()
    ends_with(-signal.SIGKILL, training, run, partial(faults.clock_jumps, 90))
    assert all(0 < row["seconds"] < time.monotonic() - began for row in rows(run) if row["kind"] == "train")
    check_stopped(run, whole, 9)
    os.utime(run / ".lock", (time.time() + faults.DAY,) * 2)
    ends_with(0, training, run, faults.machine_sleeps)
    check_finished(run, whole)


@pytest.mark.slow
def test_disks_that_are_full_or_read_only(plain, whole, disk, tmp_path):
    place, on_disk = disk
    script = Path(__file__).with_name("small_disk.py")
    on_disk("2500k", f"exec {sys.executable} {script} {place} {tmp_path / 'run'} {' '.join(plain)}")
    check_finished(tmp_path / "run", whole)
    assert read_whole(tmp_path / "run").steps == STEPS
