"""The one small training that all faults meet: its numbers, and how it is launched."""

from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from launch import end, launch, nothing
from tiny import TINY

STEPS, CHECKPOINT_EVERY, EVAL_EVERY = 24, 3, 2
CHANGES = 60
"""To the disk: the start's and those of two or three saves."""
SECONDS = 0.7
"""That a launch takes for about as much."""
ASYNC, SYNC = "train.async_checkpoints=true", "train.async_checkpoints=false"


def command(store: Path, recipe: Path) -> list[str]:
    """Without the run's folder."""
    recipe.write_text("{}\n")
    often = [f"train.steps={STEPS}", f"train.checkpoint_every={CHECKPOINT_EVERY}", f"train.eval_every={EVAL_EVERY}"]
    return ["train", str(recipe), *TINY, f"data.store={store}", *often, "train.eval_sequences=null"]


def log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def start(training: list[str], run: Path, fault: Callable[[], None] = nothing) -> BaseProcess:
    return launch([*training, f"run.dir={run}"], log_of(run), fault)


def ends_with(code: int, training: list[str], run: Path, fault: Callable[[], None] = nothing) -> str:
    """Launch and wait; returns what it said."""
    ended, said = end(start(training, run, fault)), log_of(run).read_text()
    assert ended == code, said
    return said
