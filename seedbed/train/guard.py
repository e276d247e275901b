"""What happens to a step whose loss or gradient went wrong: judged from numbers alone, before the update."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from seedbed.config.train import GuardConfig

Step = tuple[float, float]
"""Loss in nats per token, and the norm of the gradient before clipping; both of the whole batch, over all ranks."""
GAUSSIAN = 1.4826  # the std of a Gaussian over its MAD
LEAST_SPREAD = 1e-3  # of losses that hardly differ, in nats (choice)


class Verdict(NamedTuple):
    action: Literal["update", "stop", "skip", "rollback"]
    why: str = ""


def judge(history: Sequence[Step], loss: float, norm: float, config: GuardConfig) -> Verdict:
    """What to do with a step, given the last ``config.window`` updates.

    A gradient of exact zeros stops the run, and what is not finite is for ``config.nonfinite`` to say. A spike, for
    ``config.spike``: the loss, or the logarithm of the norm, lies more than ``config.threshold`` deviations above its
    median over ``history``; a deviation is 1.4826 times the median absolute one (MAD), LEAST_SPREAD at least. OLMo-core
    skips steps by mean and std of the same two numbers, 128 and 6; a median is not moved by the spikes that it is to
    find. The logarithm, since norms differ by factors (choice). While ``history`` is shorter, nothing is a spike.
    """
    if norm == 0:
        return Verdict("stop", "every gradient is exactly 0, the model cannot learn")
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return Verdict(config.nonfinite, f"loss {loss}, gradient norm {norm}")
    if config.spike == "off" or len(history) < config.window:
        return Verdict("update")
    losses, norms = zip(*history, strict=True)
    for what, value, excess in (
        ("loss", loss, _deviations(loss, losses)),
        ("gradient norm", norm, _deviations(math.log(norm), [math.log(one) for one in norms])),
    ):
        if excess > config.threshold:
            against = f"the median of the last {len(history)} updates"
            return Verdict(config.spike, f"{what} {value:.4g} lies {excess:.1f} deviations above {against}")
    return Verdict("update")


def _deviations(value: float, before: Sequence[float]) -> float:
    middle = median(before)
    spread = GAUSSIAN * median(abs(one - middle) for one in before)
    return (value - middle) / max(spread, LEAST_SPREAD)


@dataclass
class Guard:
    """What a run has to remember for its next verdict; it is saved with every checkpoint."""

    history: list[Step] = field(default_factory=list)
    """The last updates, of which spikes are told; empty where none are looked for."""
    skips: int = 0  # batches skipped in a row
    rollbacks: int = 0  # of the whole run

    def decide(self, loss: float, norm: float, config: GuardConfig) -> Verdict:
        """The verdict on a step, remembered; one skip or rollback too many is a stop."""
        verdict = judge(self.history[-config.window :], loss, norm, config)
        self.skips = self.skips + 1 if verdict.action == "skip" else 0
        self.rollbacks += verdict.action == "rollback"
        if verdict.action == "update" and config.spike != "off":
            self.history = [*self.history, (loss, norm)][-config.window :]
        if self.skips > config.max_skips:
            return Verdict("stop", f"{verdict.why}; {config.max_skips} batches in a row were skipped before")
        if self.rollbacks > config.max_rollbacks:
            return Verdict("stop", f"{verdict.why}; the run went back {config.max_rollbacks} times before")
        return verdict

    def state(self) -> dict[str, Any]:
        """As JSON values; ``Guard(**state)`` has the same verdicts."""
        return asdict(self)


def guard_row(step: int, verdict: Verdict, numbers: Step, samples: list[int]) -> dict[str, Any]:
    """The metrics row of a batch, ``samples`` [first, end) in the order of training, that made no update. ``step`` is
    that of the row too, until a rollback makes it an earlier one.
    """
    loss, norm = (number if math.isfinite(number) else None for number in numbers)
    told = {"kind": "guard", "step": step, **verdict._asdict(), "bad_step": step}
    return told | {"loss": loss, "grad_norm": norm, "samples": samples}


def in_words(row: dict[str, Any]) -> str:
    done = "skipped" if row["action"] == "skip" else f"back to step {row['step'] - 1}"
    first, end = row["samples"]
    return f"step {row['bad_step']}: {row['why']}; {done}, not trained on samples {first} to {end - 1}"
