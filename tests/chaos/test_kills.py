"""Killed again and again: no checkpoint is ever lost, and what comes out is what comes out undisturbed, bit for bit."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import faults
import pytest
from disturbed import CHANGES, CHECKPOINT_EVERY, EVAL_EVERY, SECONDS, STEPS, log_of, start
from launch import end, nothing
from promises import Whole, check_finished, check_stopped, newest, place

PLACES = {"start", "step", "evaluation", "save", "report"}


Kill = tuple[Callable[[], None], float | None]
"""A fault inside the process, and the seconds after which it is killed from outside."""
UNDISTURBED: Kill = (nothing, None)


def random_kills(rng: random.Random) -> Iterator[Kill]:
    while True:
        kind = rng.choice(("moment", "moment", "change", "change", "write"))
        if kind == "moment":
            yield nothing, rng.uniform(0, SECONDS)
        elif kind == "change":
            yield partial(faults.kill_at_change, rng.randrange(CHANGES)), None
        else:
            yield partial(faults.kill_in_write, int(10 ** rng.uniform(2.3, 5.5))), None  # metrics, texts, weights


def kill_until_done(training: list[str], run: Path, whole: Whole, kills: Iterator[Kill]) -> Counter[str]:
    """Launch the run until it comes to its end, each time with the next kill; counts the places where they hit."""
    places: Counter[str] = Counter()
    while True:
        before = newest(run)
        fault, delay = UNDISTURBED if places["report"] else next(kills, UNDISTURBED)  # a report takes long: once
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
    """In the second save; in the middle of the optimizer's file; some saves later, each time from a checkpoint on."""
    run = tmp_path / "run"
    kills = [partial(faults.kill_at_change, 45), partial(faults.kill_in_write, 250_000)]
    kills += [partial(faults.kill_at_change, number) for number in (70, 75)]
    places = kill_until_done(training, run, whole, ((kill, None) for kill in kills))
    assert places["save"] >= 3


@pytest.mark.chaos
def test_two_hundred_kills(training, whole, tmp_path, capsys):
    places, began, runs = Counter(), time.monotonic(), 0
    while places.total() < 200:
        places += kill_until_done(training, tmp_path / str(runs), whole, random_kills(random.Random(runs)))
        runs += 1
    with capsys.disabled():
        print(f"\n{places.total()} kills in {runs} runs, {time.monotonic() - began:.0f} s: {dict(places)}")
    assert set(places) == PLACES
