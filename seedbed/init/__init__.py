"""Plan, apply, receipt."""

from seedbed.init.apply import InitReport, apply_plan, draw, initialize_
from seedbed.init.plan import Plan, PlanRow, make_plan

__all__ = ["InitReport", "Plan", "PlanRow", "apply_plan", "draw", "initialize_", "make_plan"]
