"""Plan, apply, receipt; and how models built elsewhere come to it."""

from seedbed.init.apply import apply_plan, draw, initialize_
from seedbed.init.materialize import materialize_
from seedbed.init.plan import Plan, PlanRow, make_plan
from seedbed.init.report import InitReport
from seedbed.init.tensor import gamma_

__all__ = [
    "InitReport", "Plan", "PlanRow", "apply_plan", "draw", "gamma_", "initialize_", "make_plan", "materialize_",
]  # fmt: skip
