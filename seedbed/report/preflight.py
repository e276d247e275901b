"""The page of a preflight: one HTML file that says what each initialization does before training, and why."""

from dataclasses import dataclass
from typing import Any

import yaml

from seedbed.report import preflight_figures as figures
from seedbed.report import preflight_tables as tables_of
from seedbed.report.preflight_rows import Arm, Resources, Verdict
from seedbed.report.preflight_tables import Table
from seedbed.report.render import inline, render


@dataclass(frozen=True)
class PreflightReport:
    """Arms that differ in their initialization, measured on the same tokens of one store."""

    config: dict[str, Any]  # Config.dump() of the first arm
    command: str
    arms: list[Arm]
    verdicts: list[list[Verdict]]  # of each arm
    resources: Resources  # of the first arm
    data: dict[str, Any]  # what is known of the store
    versions: dict[str, str]


def tables(arms: list[Arm]) -> dict[str, Table]:
    """All tables by name, in the order of the terminal."""
    found = {
        "plan": tables_of.plan_table([arm.plan for arm in arms]),
        "masking": tables_of.masking_table(arms),
        "residual": tables_of.residual_table(arms),
        **({"budget": tables_of.budget_table(arms)} if arms[0].budget else {}),
        "layers": tables_of.layer_table(arms),
        "gradients": tables_of.gradient_table(arms),
        "first": tables_of.first_table(arms),
    }
    if arms[0].slopes:
        found["widths"] = tables_of.width_table(arms)
        found["gammas"] = tables_of.gamma_table(arms)
    if checks := [arm.coordinates for arm in arms if arm.coordinates is not None]:
        found["coordinates"] = tables_of.coordinate_table(checks)
    return found


def preflight_page(report: PreflightReport) -> str:
    """The whole page as HTML; every text in it that is not ours is escaped."""
    arms = report.arms
    shown = {
        "masking": inline(figures.masking_figure(arms), "Masking ratio of each norm"),
        "residual": inline(figures.residual_figure(arms), "Branches and flow over layers"),
        "precision": inline(figures.precision_figure(arms), "Error of bf16 and lost updates"),
        "gradients": inline(figures.gradient_figure(arms), "Gradients by component"),
        "sink": inline(figures.sink_figure(arms), "Sink score over layers"),
    }
    if arms[0].budget:
        shown["budget"] = inline(figures.budget_figure(arms), "Variance budget, predicted and measured")
    if arms[0].slopes:
        shown["widths"] = inline(figures.width_figure(arms), "Branches over widths")
    return render(
        "preflight.html",
        report=report,
        table=tables(arms),
        figure=shown,
        coordinates=[
            inline(figures.coordcheck_figure(check), f"Coordinate check of {check.title}")
            for check in (arm.coordinates for arm in arms)
            if check is not None
        ],
        config=yaml.safe_dump(report.config, sort_keys=False, allow_unicode=True),
    )
