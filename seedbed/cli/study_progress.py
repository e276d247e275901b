"""How far a study is, on stderr: live on a terminal, a line a run elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from seedbed.cli.output import note
from seedbed.train.progress import duration

if TYPE_CHECKING:
    from seedbed.study.plan import Plan
    from seedbed.study.run import Progress
    from seedbed.study.trial import Trial

Tell = Callable[["Progress", "Trial | None"], None]


@contextmanager
def study_progress(plan: "Plan") -> Iterator[tuple[Tell, Callable[[str], None]]]:
    """Yields what a study tells of its runs, and a function that shows a line for people."""
    say_state = _teller(plan)
    console = Console(stderr=True)
    if not console.is_interactive:

        def tell(state: "Progress", ended: "Trial | None") -> None:
            if ended is not None:
                note(f"{_ended(state, ended)}; {say_state(state, ended)}")

        yield tell, note
        return

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Bar(*columns, console=console) as bar:
        whole = bar.add_task("", total=None)
        shown = {}

        def show(state: "Progress", ended: "Trial | None") -> None:
            for key in shown.keys() - state.running.keys():
                bar.remove_task(shown.pop(key))
            for key, trial in state.running.items():
                if key not in shown:
                    shown[key] = bar.add_task(f"  {trial.name}", total=None)
            if ended is not None:
                bar.console.print(_ended(state, ended), markup=False, highlight=False)
            bar.update(whole, description=say_state(state, ended))

        yield show, lambda line: bar.console.print(line, markup=False, highlight=False)


def _ended(state: "Progress", trial: "Trial") -> str:
    if trial.key in state.failed:
        return f"{trial.name}: failed: {state.failed[trial.key]}"
    outcome = state.outcomes[trial.key]
    if outcome.status != "finished":
        return f"{trial.name}: {outcome.status}: {outcome.reason}"
    loss = "not evaluated" if outcome.nats_per_token is None else f"{outcome.nats_per_token:.4f} nats per token"
    return f"{trial.name}: {loss}, {duration(outcome.wall_s)}"


def _teller(plan: "Plan") -> "Callable[[Progress, Trial | None], str]":
    """A function that says how many of the known runs have ended, and about how long the others take.

    By the operations of those that ended since the call began; more runs are known as tuning goes on.
    """
    began, made = time.monotonic(), 0.0

    def say(state: "Progress", ended: "Trial | None") -> str:
        nonlocal made
        if ended is not None:
            made += ended.flops
        known = plan.trials(state.outcomes)
        left = [trial for trial in known if trial.key not in state.outcomes and trial.key not in state.failed]
        text = f"{len(known) - len(left)} of {len(known)} known runs have ended"
        if not made or not left:
            return text
        eta = (time.monotonic() - began) * sum(trial.flops for trial in left) / made
        return f"{text}; the others take about {duration(eta)}"

    return say
