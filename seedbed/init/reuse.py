"""Weights that are copied from a checkpoint instead of drawn."""

from collections.abc import Callable

from torch import Tensor

from seedbed.init.plan import Plan, PlanRow


def open_copies(plan: Plan) -> Callable[[PlanRow], Tensor]:
    """What reads the rows of a plan that are ``copied``."""

    def none(row: PlanRow) -> Tensor:
        raise NotImplementedError(row.name)

    return none
