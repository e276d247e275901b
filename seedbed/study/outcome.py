"""What a run of a study left in its folder: losses, measures, or the reason why there are none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from seedbed.errors import InputError
from seedbed.files.atomic import write_atomic

FILE = "outcome.json"
NAMED = 8
"""Damaged ones that are named besides the first."""

Status = Literal["finished", "diverged", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. A failed one (a killed process, a full disk) is tried again by the next `seedbed study run`; a
    diverged one, which its own guard stopped, would diverge again.
    """

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")

    key: str
    status: Status
    reason: str | None = None
    nats_per_token: float | None = None  # held out, after the last step; None where the run did not come to it
    bits_per_byte: float | None = None
    steps: int = 0
    tokens: int = 0  # that were predicted
    curve: list[tuple[int, float]] = field(default_factory=list)
    """(tokens, held-out nats per token), rising; where a run branched off, the trunk's evaluations come first."""
    gradient_norms: list[tuple[int, float, float]] = field(default_factory=list)
    """(tokens, median, largest) of the gradient norm before clipping, of the steps up to each evaluation."""
    weights: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    """(tokens, rows by component) of each look of ``train.weights_every``."""
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    """What was observed before the first step and after the last (study/observe.py)."""
    train_s: float = 0.0  # in steps, over all processes of the run; the trunk's too, up to where it branched off
    wall_s: float = 0.0  # of the process that ended it, with evaluation, checkpoints and measures
    peak_mb: float = 0.0  # largest resident memory of that process
    threads: int = 1
    branched: str | None = None  # the key of the run whose checkpoint this one went on from
    versions: dict[str, str] = field(default_factory=dict)


_OUTCOME = TypeAdapter(Outcome)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    write_atomic(folder / FILE, _OUTCOME.dump_json(outcome, indent=1))


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome in ``folder``; None where there is none yet. Raises InputError where it is damaged."""
    path = folder / FILE
    try:
        return _OUTCOME.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        what = ": ".join([".".join(map(str, first["loc"])), first["msg"]] if first["loc"] else [first["msg"]])
        raise InputError(f"{path}: damaged ({what}); remove the folder, and the run is made again") from None


def damage(runs: Path) -> str:
    """Which outcomes in the folder ``runs`` are damaged, in one line: what the first one lacks, and the others' names,
    NAMED at most; empty where none is."""
    found: dict[str, str] = {}
    for path in sorted(runs.glob(f"*/{FILE}")):
        try:
            read_outcome(path.parent)
        except InputError as error:
            found[path.parent.name] = str(error)
    told, others = next(iter(found.values()), ""), list(found)[1:]
    if not others:
        return told
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return f"{told}; {len(others)} more are damaged: {', '.join(others[:NAMED])}{more}"


def settled(folder: Path, looks: Sequence[str] = ()) -> Outcome | None:
    """The outcome in ``folder``, unless its run failed and is to be tried again, or one of ``looks`` has not been
    observed yet. Raises as read_outcome.
    """
    outcome = read_outcome(folder)
    return None if outcome is None or outcome.status == "failed" or unobserved(outcome, looks) else outcome


def unobserved(outcome: Outcome, looks: Sequence[str]) -> list[str]:
    """Which of ``looks`` a finished run lacks: the study that made it did not ask for them."""
    return [look for look in looks if outcome.status == "finished" and look not in outcome.after]
