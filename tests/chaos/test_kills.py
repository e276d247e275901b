"""Killed again and again: no checkpoint is ever lost, and what comes out is what comes out undisturbed, bit for bit."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faults
import pytest
from disturbed import CHANGES, CHECKPOINT_EVERY, EVAL_EVERY, SECONDS, STEPS, log_of, start
from launch import end, nothing
from promises import Whole, check_finished, check_stopped, newest, place

PLACES = {"start", "step", "evaluation", "save", "report"}


def random_kill(rng: random.Random) -> tuple[Callable[[], None], float | None]:
    """A fault inside the process, and the seconds after which it is killed from outside."""
    kind = rng.choice(("moment", "moment", "change", "change", "write"))
    if kind == "moment":
        return nothing, rng.uniform(0, SECONDS)
    if kind == "change":
        return partial(faults.kill_at_change, rng.randrange(CHANGES)), None
    return partial(faults.kill_in_write, int(10 ** rng.uniform(2.3, 5.5))), None  # metrics, texts, weights


def kill_until_done(training: list[str], run: Path, whole: Whole, rng: random.Random, most: int) -> Counter[str]:
    """Kill the run at random until it comes to its end, ``most`` times; counts the places where it was."""
    places: Counter[str] = Counter()
    while True:
        before = newest(run)
        fault, delay = (nothing, None) if places["report"] or places.total() == most else random_kill(rng)
        process = start(training, run, fault)
        if delay is not None:
            process.join(delay)
            process.kill()
        code = end(process)
        if code == 0:
            check_finished(run, whole)
            return places
        assert code in (-signal.SIGKILL, -signal.SIGXFSZ), log_of(run).read_text()
        check_stopped(run, whole, before)
        places[place(run, before, CHECKPOINT_EVERY, EVAL_EVERY, STEPS)] += 1


def test_killed_until_done(training, whole, tmp_path):
    assert kill_until_done(training, tmp_path / "run", whole, random.Random(3), most=5).total() >= 3


@pytest.mark.chaos
def test_two_hundred_kills(training, whole, tmp_path, capsys):
    places, began, runs = Counter(), time.monotonic(), 0
    while places.total() < 200:
        places += kill_until_done(training, tmp_path / str(runs), whole, random.Random(runs), most=200)
        runs += 1
    with capsys.disabled():
        print(f"\n{places.total()} kills in {runs} runs, {time.monotonic() - began:.0f} s: {dict(places)}")
    assert set(places) == PLACES
