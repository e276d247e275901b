"""A whole study of tiny runs, for tests that disturb it."""

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from killing import at_change, die
from tasks import wait_for
from tiny import TINY, quiet

from seedbed.api import fit
from seedbed.config import Config
from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan
from seedbed.study.run import Engine, Progress, run
from seedbed.study.spec import spec_from

train = partial(fit, tell=quiet, page=False)


def plan_of(store: Path, *levels: float, shares: Sequence[float] = (0.5, 0.75, 1.0)) -> Plan:
    """A run at each gamma, and those of smaller shares that branch off it."""
    base = {path: _value(value) for path, _, value in (override.partition("=") for override in TINY)}
    for path in ("train.steps", "train.eval_every"):
        del base[path]
    cooling = {"optim.schedule": {"kind": "wsd", "warmup": 0.1, "decay": 0.2}}
    tree = {
        "name": "tiny", "question": "?", "set": base | cooling | {"data.store": str(store)},
        "axes": {"gamma": {"init.gamma": list(levels)}}, "compare": {"axis": "gamma", "baseline": str(levels[0])},
        "seeds": [0], "budget": {"tokens": 3000}, "shares": list(shares), "milestones": 4,
    }  # fmt: skip
    return Plan(spec_from(tree, "test"))


def carry_out(plan: Plan, runs: Path, engine: Engine, train: Callable[..., Any] = train) -> Progress:
    return run(plan, runs, engine, train, 1, lambda state, trial: None)


def found(outcomes: Mapping[str, Outcome]) -> dict[str, tuple[Any, ...]]:
    """What the runs came to, without what a clock made."""
    return {
        key: (outcome.status, outcome.nats_per_token, outcome.curve, outcome.steps, outcome.before, outcome.after)
        for key, outcome in outcomes.items()
    }


def dies_once(seed: int, config: Config) -> Any:
    """Trains; each run is killed once, before a change to the disk."""
    flag = Path(f"{config.run.dir}.died")
    if not flag.exists():
        flag.touch()
        at_change(random.Random(f"{seed} {flag.name}").randrange(50), die)
    return train(config)


def kills_a_worker_of_ray(flag: Path, config: Config) -> Any:
    """Trains; once, after the first checkpoint of a run, its worker of Ray is killed: the parent of the process that
    this one was forked from."""
    folder = Path(str(config.run.dir))

    def kill() -> None:
        wait_for(folder / "checkpoints")
        flag.mkdir()
        os.kill(_parent(os.getppid()), signal.SIGKILL)

    if not folder.exists():
        with suppress(FileExistsError):
            flag.with_suffix(".chosen").mkdir()
            threading.Thread(target=kill, daemon=True).start()
    return train(config)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
