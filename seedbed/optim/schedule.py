"""Learning-rate schedules: pure functions of the step, as a factor in [0, 1] of the peak rate."""

import math

from seedbed.config.optim import ConstantSchedule, CosineSchedule, Schedule, WsdSchedule
from seedbed.errors import InputError


def span(length: int | float, steps: int) -> int:
    """Steps of a length: a whole number counts steps, a fraction is a share of ``steps``, rounded up."""
    if isinstance(length, int):
        return length
    return math.ceil(round(length * steps, 6))  # 0.07 * 100 is 7.000000000000001, and means 7


def validate(steps: int, schedule: Schedule) -> None:
    """Raise InputError, naming the fields, when ``schedule`` does not fit into a run of ``steps`` steps."""
    where, warmup = "optim.schedule", span(schedule.warmup, steps)
    if isinstance(schedule, ConstantSchedule):
        decay, field = 0, "warmup"
    else:
        if schedule.final > 1:
            raise InputError(f"{where}.final={schedule.final:g} is above the peak; give a share of it, from 0 to 1")
        if isinstance(schedule, WsdSchedule):
            decay, field = span(schedule.decay, steps), "warmup + decay"
            if decay == 0 and schedule.final != 1:
                raise InputError(
                    f"{where}.decay=0 leaves no step to come down to {where}.final={schedule.final:g}; "
                    f"set decay to at least 1, or {where}.kind=constant"
                )
        else:
            decay, field = 1, "warmup + the last step"
    if warmup + decay > steps:
        lengths = f"{warmup} + {decay} = {warmup + decay}" if decay else f"{warmup}"
        shorten = f"shorten {where}.warmup" + (f" or {where}.decay" if isinstance(schedule, WsdSchedule) else "")
        raise InputError(
            f"{where}.warmup: {field} = {lengths} steps, more than train.steps={steps}; {shorten}, or train longer"
        )


def rate(step: int, steps: int, schedule: Schedule) -> float:
    """Factor of the peak rate that step ``step`` (0, 1, ... ``steps`` - 1) is made with.

    Warmup gives (step + 1) / warmup, so that no step is made with 0 and the last one of the warmup with 1. The last
    step of a run is made with exactly ``schedule.final``. S3 section 11.8.2.2 for WSD and its 1 - sqrt(t) cooldown.
    """
    if not 0 <= step < steps:
        raise ValueError(f"step {step} of a run of {steps} steps")
    warmup = span(schedule.warmup, steps)
    if step < warmup:
        return (step + 1) / warmup
    match schedule:
        case ConstantSchedule():
            return 1.0
        case CosineSchedule():
            t = (step + 1 - warmup) / (steps - warmup)
            return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * t)) / 2
        case WsdSchedule():
            decay = span(schedule.decay, steps)
            if step < steps - decay:
                return 1.0
            t = (step + 1 - (steps - decay)) / decay
            left = 1 - t if schedule.shape == "linear" else 1 - math.sqrt(t)
            return schedule.final + (1 - schedule.final) * left
