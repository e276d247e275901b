"""A study small enough to plan and to run in a test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny import TINY

if TYPE_CHECKING:
    from seedbed.study.plan import Plan, Trial
    from seedbed.study.run import Ended, Engine, NextTask
    from seedbed.study.spec import Spec
    from seedbed.study.work import Task

STEP = 4 * 32
"""Tokens of a step of the tiny configuration."""


def tree(store: Path | None, **changes: Any) -> dict[str, Any]:
    """Two gammas, one seed, twenty steps; ``changes`` replace fields."""
    from seedbed.config.reader import parse_value

    theirs = {"train.steps", "train.eval_every"}  # what the study sets itself
    if "sizes" in changes:
        theirs |= {"model.d_model", "model.n_layers", "model.attention.n_heads"}
    for axis in changes.get("axes", {}).values():
        theirs |= {path for level in axis.values() if isinstance(level, dict) for path in level} | axis.keys()
    pairs = (line.split("=") for line in [*TINY, f"data.store={json.dumps(str(store))}"])
    overrides = {path: parse_value(value, path) for path, value in pairs if path not in theirs}
    return {
        "name": "tiny", "question": "q", "set": overrides | changes.pop("set", {}),
        "axes": {"gamma": {"init.gamma": [0.5, 1.0]}}, "seeds": [0], "budget": {"tokens": 20 * STEP},
        "milestones": 4, "compare": {"axis": "gamma", "baseline": "0.5"}, "observe": [],
    } | changes  # fmt: skip


def spec(store: Path | None, **changes: Any) -> "Spec":
    from seedbed.study.spec import spec_from

    return spec_from(tree(store, **changes), "test")


def plan(store: Path, **changes: Any) -> "Plan":
    from seedbed.study.plan import Plan

    return Plan(spec(store, **changes))


def trial(store: Path, *, share: float = 1.0, cell: int = 0, **changes: Any) -> "Trial":
    """One run of the comparison."""
    made = plan(store, **changes)
    return next(one for one in made.comparison(made.cells[cell], {}) if one.share == share)


def in_this_process(work: "Callable[[Task], None]") -> "Engine":
    """The engine that does one task after another, here."""
    from seedbed.study.claim import claimed

    def engine(next_task: "NextTask", ended: "Ended") -> None:
        while (task := next_task()) is not None:
            with claimed(task.folder):
                work(task)
            ended(task, None)

    return engine
