"""What a study costs beside its runs, what two runs at a time gain, and what a run costs beside its steps.

    python benchmarks/studies.py

One-thread runs of a d=32 model, as the studies of recipes/studies have them at CPU scale, on a part of the standard
library; needs two idle cores. Goals: below 2 % beside the runs, and at least 1.6 times as fast two at a time.
"""

import functools
import sys
import tempfile
import time
from pathlib import Path

from overheads import RECIPE, make_store

from seedbed.analysis.run import snapshot
from seedbed.api import fit
from seedbed.config.load import read_tree
from seedbed.data.store import Store
from seedbed.study.local import local_engine
from seedbed.study.observe import observe
from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan
from seedbed.study.run import run
from seedbed.study.spec import spec_from
from seedbed.train.setup import initial_model

TOKENS = 500_000
LOOKS = ("residual", "masking", "sink")


def plan_of(store: Path, tokens: int) -> Plan:
    """Four runs."""
    tree = {
        "name": "benchmark", "question": "What does a study cost?",
        "base": {"file": str(RECIPE), "values": read_tree(RECIPE)},
        "set": {
            "data.store": str(store), "optim.name": "adamw", "model.tied": True, "train.eval_sequences": 256,
            "train.checkpoint_every": 200,
        },
        "axes": {"gamma": {"init.gamma": [0.5, 1.0]}}, "compare": {"axis": "gamma", "baseline": "0.5"},
        "sizes": {"widths": [32], "layers": 4, "head_dim": 8}, "seeds": [0, 1], "budget": {"tokens": tokens},
        "observe": list(LOOKS),
    }  # fmt: skip
    return Plan(spec_from(tree, "benchmark"))


def quiet(_message: str) -> None:
    pass


def timed(plan: Plan, runs: Path, workers: int) -> tuple[float, list[Outcome]]:
    """Seconds of a study, and what its runs left."""
    began = time.perf_counter()
    train = functools.partial(fit, tell=quiet, page=False)
    state = run(plan, runs, local_engine(workers, print), train, 1, lambda _state, _trial: None)
    assert not state.failed, state.failed
    return time.perf_counter() - began, list(state.outcomes.values())


def seconds(work) -> float:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = make_store(folder)
        started, _ = timed(plan_of(store, 50_000), folder / "warm", 1)  # imports, once a command
        plan = plan_of(store, tokens)
        one, alone = timed(plan, folder / "one", 1)
        two, _ = timed(plan, folder / "two", 2)
        trial = plan.trials({})[0]
        model, _ = initial_model(trial.config)
        begins = seconds(lambda: snapshot(model, Store(store)))
        looks = seconds(lambda: observe(model, Store(store), LOOKS))
    wall, steps = sum(outcome.wall_s for outcome in alone), sum(outcome.train_s for outcome in alone)
    print(f"4 runs of {tokens:,} tokens, d=32, 4 layers: {wall / 4:.1f} s each, {steps / 4:.1f} s of them in steps")
    print(f"beside the runs: {(one - wall) / wall:.2%} of their time (goal: below 2 %)")
    print(f"two at a time: {one / two:.2f} times as fast (goal: 1.6)")
    print(f"a first study with 4 runs of 12 steps, imports included: {started:.1f} s")
    print(f"of a run {1 - steps / wall:.1%} is not in steps: evaluation, checkpoints, measures. Among them, of a run:")
    print(f"  snapshot before the first step {begins:.2f} s ({4 * begins / wall:.1%})")
    print(f"  observation before and after {2 * looks:.2f} s ({8 * looks / wall:.1%})")
    print(f"largest resident memory of a run: {max(outcome.peak_mb for outcome in alone):,.0f} MB")


if __name__ == "__main__":
    main()
