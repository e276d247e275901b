"""What the commands of a study tell: a JSON document, and the same for people."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed.cli.output import console, note, table
from seedbed.report.render import count, number
from seedbed.report.results import RESULT
from seedbed.train.progress import duration

if TYPE_CHECKING:
    from seedbed.study.estimate import Estimate
    from seedbed.study.outcome import Outcome
    from seedbed.study.plan import Plan


def plan_document(
    plan: "Plan", outcomes: Mapping[str, "Outcome"], found: "Estimate", folder: Path, workers: int
) -> dict[str, Any]:
    """What a study takes and what of it is done, as JSON values."""
    spec = plan.spec
    cells = [
        asdict(cell)
        | {
            "tokens_per_parameter": cell.tokens_per_parameter,
            "tokens_per_non_embedding": cell.tokens_per_non_embedding,
        }
        for cell in found.cells
    ]
    return {
        "study": spec.name,
        "question": spec.question,
        "source": spec.source,
        "notes": spec.notes,
        "folder": str(folder),
        "arms": list(dict.fromkeys(cell.arm for cell in plan.cells)),
        "compare": spec.compare.model_dump(),
        "sizes": list(spec.sizes),
        "seeds": spec.seeds,
        "shares": spec.shares,
        "tune": None if spec.tune is None else spec.tune.model_dump(),
        "evaluate": None if spec.evaluate is None else spec.evaluate.model_dump(),
        "cells": cells,
        "runs": {
            "ended": asdict(found.done),
            "tuning_now": asdict(found.first),
            "tuning_at_most": asdict(found.tuning),
            "tuning_grid_a_cell": plan.grid_size,
            "comparison": asdict(found.comparison),
            "left_at_least": asdict(found.least),
            "left_at_most": asdict(found.most),
            "from_their_first_step": found.from_start,
        },
        "rounded": plan.rounded(),
        "workers": workers,
        "speeds": [asdict(speed) for speed in found.speeds],
        "problems": plan.problems(outcomes),
        "smoke": len(spec.seeds) == 1,
    }


def show_plan(document: Mapping[str, Any]) -> None:
    screen = console()
    print(f"{document['study']}: {document['question']}")
    compared, tune = document["compare"], document["tune"]
    seeds = f"{_counted(len(document['seeds']), 'seed')}: {', '.join(map(str, document['seeds']))}"
    print(f"arms      {'; '.join(document['arms'])}")
    print(f"compared  {compared['axis']}, with {compared['baseline']}, on {seeds}")
    if tune is not None:
        grid = "; ".join(
            f"{path} of {', '.join(f'{value:g}' for value in values)}" for path, values in tune["grid"].items()
        )
        print(f"tuned     {grid}; on seed {tune['seed']}")
    if (asked := document["evaluate"]) is not None:
        print(
            f"evaluated {', '.join([*asked['data'], *asked['pairs']])}; runs of the whole budget, after their last step"
        )
    screen.print(_cells(document), _work(document), sep="\n")
    for speed in document["speeds"]:
        print(f"time of {speed['size']}: {speed['basis']}")
    for what, text in document["notes"].items():
        print(f"{what}: {text}")
    for problem in (*document["problems"], *document["rounded"]):
        note(problem)
    if left := document["runs"]["from_their_first_step"]:
        note(
            f"{_counted(left, 'run')} of a smaller share {'is' if left == 1 else 'are'} trained from the first step: "
            "the finished run to branch off kept no checkpoint there"
        )
    if document["smoke"]:
        note("one seed: nothing will say how far chance reaches")


def _cells(document: Mapping[str, Any]):
    """A row for each size, and for arms of it that differ in their numbers."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for cell in document["cells"]:
        numbers = (
            cell["size"], count(cell["parameters"]), count(cell["non_embedding"]), count(cell["steps"]),
            count(cell["tokens"]), number(cell["tokens_per_parameter"]), number(cell["tokens_per_non_embedding"]),
            number(cell["flops"]),
        )  # fmt: skip
        rows.setdefault(numbers, []).append(cell["arm"])
    arms = len(document["arms"])
    shown = [[size, "all" if len(of) == arms else "; ".join(of), *numbers] for (size, *numbers), of in rows.items()]
    columns = ["size", "arms", "parameters", "w/o embeddings", "steps", "tokens", "a parameter", "w/o emb.", "FLOP"]
    return table("a run of the whole budget", columns, shown, left=2)


def _work(document: Mapping[str, Any]):
    names = {
        "ended": "have ended",
        "tuning_now": "tuning, can begin now",
        "tuning_at_most": "tuning, at most",
        "comparison": "comparison",
        "left_at_least": "left, at least",
        "left_at_most": "left, at most",
    }
    rows = []
    for key, name in names.items():
        if key.startswith("tuning") and document["tune"] is None:
            continue
        work = document["runs"][key]
        seconds = None if work["seconds"] is None else work["seconds"] / document["workers"]
        time = "" if key == "ended" else "not estimated" if seconds is None else duration(seconds)
        rows.append([name, count(work["runs"]), count(work["tokens"]), number(work["flops"]), time])
    workers = _counted(document["workers"], "worker")
    return table("", ["runs", "", "tokens", "FLOP", f"time, {workers}"], rows)


def other_data(plan: "Plan", report: Path) -> str | None:
    """A line where the last ``report`` of this study is of data that none of its runs reads now."""
    try:
        before = json.loads((report / RESULT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # none, or a damaged one, which is written anew
        return None
    now = {plan.fingerprint(plan.comparison(cell, plan.middle)[0]) for cell in plan.cells}
    if now & set(before["data"].values()):
        return None
    finished = len({row["key"] for row in before["runs"] if row["status"] == "finished"})
    return f"the data changed: {_counted(finished, 'finished run')} of other data stay and are not used"


def ending(plan: "Plan", outcomes: Mapping[str, "Outcome"], folder: Path, shown: Path) -> dict[str, Any]:
    """How far a study is and where its report lies, as JSON values."""
    trials = plan.trials(outcomes)
    ended = {status: {} for status in ("finished", "diverged", "failed")}
    for trial in trials:
        if trial.key in outcomes:
            outcome = outcomes[trial.key]
            ended[outcome.status][trial.name] = outcome.reason
    return {
        "study": plan.spec.name,
        "folder": str(folder),
        "known": len(trials),
        "finished": len(ended["finished"]),
        "diverged": ended["diverged"],
        "failed": ended["failed"],
        "problems": plan.problems(outcomes),
        "unobserved": plan.unobserved(outcomes),
        "report": str(shown),
    }


def show_ending(document: Mapping[str, Any]) -> None:
    for status in ("diverged", "failed"):
        for name, reason in document[status].items():
            note(f"{status}: {name}: {reason}")
    for problem in document["problems"]:
        note(f"no result: {problem}")
    for line in document["unobserved"]:
        note(line)
    told = [f"{document['finished']} of {_counted(document['known'], 'known run')} finished"]
    told += [f"{len(document[status])} {status}" for status in ("diverged", "failed") if document[status]]
    print(f"runs      {', '.join(told)}")
    print(f"report    {document['report']}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
