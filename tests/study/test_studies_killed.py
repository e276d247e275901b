"""A study whose runner or runs are killed: nothing finished is repeated, and all is as undisturbed, bit for bit."""

import multiprocessing
import os
import random
import signal
import sys
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from studied import carry_out, dies_once, found, plan_of, train
from studies import in_this_process

from seedbed.study import process
from seedbed.study.local import local_engine
from seedbed.study.outcome import settled
from seedbed.study.run import known_outcomes
from seedbed.study.work import work

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([*process.PRELOAD, "pytest"])


@pytest.fixture(scope="module")
def expected(tiny_store, tmp_path_factory):
    """What the study comes to undisturbed, in this process."""
    plan = plan_of(tiny_store, 0.5, 1.0)
    state = carry_out(plan, tmp_path_factory.mktemp("whole"), in_this_process(work))
    assert len(state.outcomes) == 6
    return found(state.outcomes)


def start(store: Path, runs: Path, train=train, workers: int = 2) -> BaseProcess:
    """A runner in a process of its own."""
    runner = FORKS.Process(target=_run, args=(store, runs, train, workers))
    runner.start()
    return runner


def _run(store: Path, runs: Path, train, workers: int) -> None:
    log = os.open(f"{runs}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # this process is forked from one that has everything loaded; a second such one would take seconds
    process._FORKS = multiprocessing.get_context("fork")  # pyright: ignore
    state = carry_out(plan_of(store, 0.5, 1.0), runs, local_engine(workers, print), train)
    sys.exit(bool(state.failed))


def done(runs: Path) -> dict[str, int]:
    """When each finished run wrote its outcome."""
    return {path.parent.name: path.stat().st_mtime_ns for path in runs.glob("*/outcome.json") if settled(path.parent)}


def outcomes(store: Path, runs: Path):
    return found(known_outcomes(plan_of(store, 0.5, 1.0), runs))


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.chaos)])
def test_a_runner_that_is_killed(kills, tiny_store, tmp_path, expected):
    """Its runs save and end; the next runner waits for them, and goes on."""
    rng, runs, before, hit = random.Random(0), tmp_path / "0", {}, 0
    for number in range(kills):
        runner = start(tiny_store, runs)
        runner.join(rng.uniform(0.2, 2.0))
        hit += runner.exitcode is None
        runner.kill()
        runner.join()
        after = done(runs)
        assert before.items() <= after.items(), "a finished run was repeated"
        before = after
        if len(after) == len(expected):
            assert outcomes(tiny_store, runs) == expected
            runs, before = tmp_path / str(number + 1), {}
    runner = start(tiny_store, runs)
    runner.join(120)
    assert runner.exitcode == 0, Path(f"{runs}.said").read_text()
    assert before.items() <= done(runs).items()
    assert outcomes(tiny_store, runs) == expected
    assert hit
    assert not list(runs.glob(".partial-*"))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.chaos if seed else pytest.mark.slow) for seed in range(6)]
)
def test_runs_that_are_killed(seed, tiny_store, tmp_path, expected):
    """Each once at most, before a random change to the disk."""
    runner = start(tiny_store, tmp_path / "runs", partial(dies_once, seed))
    runner.join(120)
    said = Path(f"{tmp_path / 'runs'}.said").read_text()
    assert runner.exitcode == 0, said
    assert said.count("it is tried once more") >= 2
    assert outcomes(tiny_store, tmp_path / "runs") == expected


@pytest.mark.slow
def test_two_studies_share_their_runs(tiny_store, tmp_path, expected):
    """At once: each run is made by one of them, and both have them all."""
    both = [start(tiny_store, tmp_path / "runs") for _ in range(2)]
    for runner in both:
        runner.join(120)
    assert [runner.exitcode for runner in both] == [0, 0], Path(f"{tmp_path / 'runs'}.said").read_text()
    assert outcomes(tiny_store, tmp_path / "runs") == expected
    begun = [log.read_text().count("train 1/") for log in tmp_path.glob("runs/*.log")]
    assert sorted(begun) == [0, 0, 0, 0, 1, 1]  # those that branch off begin later


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_study_that_is_stopped_goes_on(signum, tiny_store, tmp_path, expected):
    runs, before = tmp_path / "runs", {}
    while True:
        runner = start(tiny_store, runs)
        runner.join(2.5)
        if runner.exitcode is not None:
            break
        assert runner.pid is not None
        os.kill(runner.pid, signum)
        runner.join(60)
        assert before.items() <= done(runs).items()
        before = done(runs)
    assert runner.exitcode == 0
    assert outcomes(tiny_store, runs) == expected


@pytest.mark.slow
def test_a_full_disk(disk, tiny_store):
    place, on_disk = disk
    script = Path(__file__).with_name("small_disk_study.py")
    on_disk("3m", f"exec {sys.executable} {script} {tiny_store} {place}")
