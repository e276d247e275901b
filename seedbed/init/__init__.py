"""Plan, apply, receipt."""

from seedbed.init.apply import Receipt, apply_plan, draw, initialize_
from seedbed.init.plan import Plan, PlanRow, make_plan

__all__ = ["Plan", "PlanRow", "Receipt", "apply_plan", "draw", "initialize_", "make_plan"]
