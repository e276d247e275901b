"""How many steps a budget is, and how runs of several shares of it share their beginning."""

import math
from typing import Any

from seedbed.config import Config
from seedbed.config.optim import WsdSchedule
from seedbed.errors import InputError
from seedbed.optim.schedule import span, validate
from seedbed.study.spec import Budget, Spec

BRANCHES = 20
"""A run from which others branch keeps so many checkpoints, evenly spread; shares of it are rounded to them."""


def budget_steps(spec: Spec, parameters: int, flops_per_token: int, step_tokens: int, where: str) -> int:
    """Steps of the whole budget, rounded to the nearest; where runs branch, down to whole parts of 1 / BRANCHES."""
    tokens = budget_tokens(spec.budget, parameters, flops_per_token)
    steps = round(tokens / step_tokens)
    if len(spec.shares) > 1:
        unit = _unit(steps)
        steps = steps // unit * unit
    if steps < 1:
        raise InputError(f"{where}: a budget of {tokens:,.0f} tokens is less than one step of {step_tokens:,}")
    if steps >= 2**31:
        raise InputError(f"{where}: a budget of {tokens:.3g} tokens is {steps:.3g} steps, more than a run can have")
    return steps


def budget_tokens(budget: Budget, parameters: int, flops_per_token: int) -> float:
    """Tokens that a model with so many parameters and operations a token reads."""
    if budget.tokens is not None:
        return budget.tokens
    if budget.flops is not None:
        return budget.flops / flops_per_token
    assert budget.tokens_per_parameter is not None
    return budget.tokens_per_parameter * parameters


def timed(config: Config, steps: int, share: float, spec: Spec, trunk: bool, where: str) -> tuple[Config, int]:
    """``config`` for ``share`` of ``steps``, and after which step its cooldown begins (0 where no runs branch).

    Where runs branch, warmup and cooldown are whole numbers of steps, so that runs of all shares make the same steps
    until each one's cooldown. A ``trunk`` keeps checkpoints where the others begin theirs.
    """
    total, start = steps, 0
    schedule = config.optim.schedule
    kept: dict[str, Any] = {}
    if len(spec.shares) > 1:
        if not isinstance(schedule, WsdSchedule):
            raise InputError(f"{where}: shares: branching off needs optim.schedule.kind=wsd, not {schedule.kind}")
        warmup = span(schedule.warmup, steps)
        spans = _spans(schedule, steps, warmup, spec.shares, where)
        total, start = spans[share]
        schedule = schedule.model_copy(update={"warmup": warmup, "decay": total - start})
        if trunk:
            every = math.gcd(*(begin for each, (_, begin) in spans.items() if each < 1))
            kept = {"checkpoint_every": every, "keep_checkpoints": steps // every + 1}
    try:
        validate(total, schedule)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    train = {"steps": total, "eval_every": math.ceil(total / spec.milestones), "log_every": 1, **kept}
    sections = {
        "train": config.train.model_copy(update=train),
        "optim": config.optim.model_copy(update={"schedule": schedule}),
    }
    return config.model_copy(update=sections), start


def _spans(
    schedule: WsdSchedule, steps: int, warmup: int, shares: list[float], where: str
) -> dict[float, tuple[int, int]]:
    """Steps of each share of a run of ``steps``, and after which of them its cooldown begins; whole parts of the run.

    Raises InputError where one has no step between warmup and cooldown, or two are equal.
    """
    unit, spans = _unit(steps), {}
    for share in shares:
        total = max(unit, round(share * steps / unit) * unit)
        start = round((total - span(schedule.decay, total)) / unit) * unit
        if not max(1, warmup) <= start < total:
            raise InputError(
                f"{where}: share {share:g} is {total} steps, too few for a warmup of {warmup} and a cooldown; leave it "
                "out, shorten optim.schedule.warmup or decay, or raise the budget"
            )
        if equal := [other for other, (taken, _) in spans.items() if taken == total]:
            raise InputError(
                f"{where}: shares {equal[0]:g} and {share:g} are both {total} of {steps} steps; leave one out"
            )
        spans[share] = total, start
    return spans


def _unit(steps: int) -> int:
    """Steps between two checkpoints of a run from which others branch."""
    return max(1, steps // BRANCHES)
