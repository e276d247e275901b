"""What a run keeps, whatever happens to it: looked at from outside, in its folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from seedbed.files.atomic import folder_damage
from seedbed.files.steps import step_folders

Tensors = dict[tuple[str, str], Tensor]
"""By file and name."""


@dataclass(frozen=True)
class Whole:
    """What a run that nothing disturbed, and that kept all its checkpoints, made."""

    rows: list[dict[str, Any]]
    checkpoints: dict[int, Tensors]
    """By completed steps."""

    @property
    def steps(self) -> int:
        return max(self.checkpoints)


def read_whole(run: Path) -> Whole:
    return Whole(learned(run), {step_of(folder): tensors(folder) for folder in step_folders(run)})


def rows(run: Path) -> list[dict[str, Any]]:
    """The metrics; a last line without its end is no row."""
    file = run / "metrics.jsonl"
    return list(map(json.loads, file.read_bytes().split(b"\n")[:-1])) if file.exists() else []


def learned(run: Path) -> list[dict[str, Any]]:
    """The rows of training and evaluation without what a clock made."""
    kept = [row for row in rows(run) if row["kind"] in ("train", "eval")]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "seconds")} for row in kept]


def last_step(run: Path, kind: str) -> int:
    """As far as the metrics tell; of the kind ``checkpoint`` it is the newest that was reported as saved."""
    return max((row["step"] for row in rows(run) if row["kind"] == kind), default=0)


def tensors(checkpoint: Path) -> Tensors:
    """Weights and optimizer state."""
    files = sorted(checkpoint.rglob("*.safetensors"))
    return {(str(file.relative_to(checkpoint)), name): t for file in files for name, t in load_file(file).items()}


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def whole_checkpoints(run: Path) -> list[Path]:
    """Newest first."""
    return [folder for folder in step_folders(run) if folder_damage(folder) is None]


def newest(run: Path) -> int:
    """The completed steps of the newest whole checkpoint, 0 where there is none."""
    return next(map(step_of, whole_checkpoints(run)), 0)


def check_stopped(run: Path, whole: Whole, least: int) -> None:
    """What holds whenever a run has stopped, however it did; ``least`` is the checkpoint that was there before."""
    assert newest(run) >= max(least, last_step(run, "checkpoint")), "a checkpoint is lost"
    assert last_step(run, "train") >= newest(run), "the metrics are behind the checkpoint"
    made = learned(run)
    assert made == whole.rows[: len(made)]
    for checkpoint in whole_checkpoints(run):
        check_equal(tensors(checkpoint), whole.checkpoints[step_of(checkpoint)])


def check_finished(run: Path, whole: Whole) -> None:
    """The run is the one that nothing disturbed, and nothing else is left of what happened."""
    check_stopped(run, whole, whole.steps)
    assert learned(run) == whole.rows
    assert (run / "report.html").is_file()
    assert list(run.rglob(".partial-*")) == []


def check_equal(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def place(run: Path, before: int, checkpoint_every: int, eval_every: int, steps: int) -> str:
    """Where a process was when it was killed, by what it left; ``before`` is the step that it had resumed after."""
    made = last_step(run, "train")
    if newest(run) == steps:
        return "report"
    if made <= before:
        return "start"
    if list(run.glob("checkpoints/.partial-*")):
        return "save"
    if (made % eval_every == 0 or made == steps) and last_step(run, "eval") < made:
        return "evaluation"
    return "save" if made % checkpoint_every == 0 and newest(run) < made else "step"
