"""The page of a run: one HTML file that needs no network and says what was run, on what, and how it came out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from markupsafe import Markup

from seedbed.facts.fact import EMBEDDING_ROLES, ROLES, ParameterFact
from seedbed.measure.rows import WeightRow, component_table
from seedbed.measure.sink import SinkReport
from seedbed.measure.spectra import gaussian_stats
from seedbed.measure.trajectory import Reference, TrajectoryRow, initial, left_out, measures, recorded, references
from seedbed.report import figures
from seedbed.report.dynamics_claims import claims
from seedbed.report.dynamics_figures import measure_figure
from seedbed.report.gradients_figure import gradients_figure
from seedbed.report.measures import NAMES
from seedbed.report.render import inline, render
from seedbed.train.metrics import METRICS

TRAJECTORIES = ("stable_rank", "row_cosine")  # of what a run records; `seedbed analyze dynamics` shows all


@dataclass(frozen=True)
class RunReport:
    """What the page shows. Lists may be empty and sinks None: the page then says that it was not measured."""

    name: str
    config: dict[str, Any]  # Config.dump()
    metrics: list[dict[str, Any]]  # the rows of metrics.jsonl
    receipt: dict[str, Any]  # Receipt.dump()
    versions: dict[str, str]
    data: dict[str, Any] = field(default_factory=dict)  # what is known of the store: documents, tokens, bytes, hash
    weights_before: list[WeightRow] = field(default_factory=list)
    weights_after: list[WeightRow] = field(default_factory=list)
    unmeasured: str = ""  # the matrices that both leave out, in words
    sink_before: SinkReport | None = None
    sink_after: SinkReport | None = None
    facts: list[ParameterFact] = field(default_factory=list)  # of all matrices: Gaussian ones of their shapes are shown
    prompt: str = ""
    sample: str = ""


def run_page(report: RunReport) -> str:
    """The whole page as HTML; every text in it that is not ours is escaped."""
    train, heldout = figures.kind(report.metrics, "train"), figures.kind(report.metrics, "eval")
    rows, references, damaged = _trajectory(report)
    before, after = (
        {row.role: row for row in component_table(rows)} for rows in (report.weights_before, report.weights_after)
    )
    return render(
        "page.html",
        report=report,
        parameters=parameter_counts(report.receipt["rows"]),
        first=train[0] if train else None,
        last=train[-1] if train else None,
        heldout=heldout[-1] if heldout else None,
        passed_over=figures.kind(report.metrics, "guard"),
        figure=_figures(report, rows, references),
        claims=claims({"this run": report.config["optim"]["name"]}) if rows else [],
        components=[(before.get(role), after.get(role)) for role in dict.fromkeys((*before, *after))],
        problems=[
            f"{when}, {problem}"
            for when, table in (("initialized", before), ("trained", after))
            for row in table.values()
            for problem in row.problems
        ]
        + [f"over steps, {line}" for line in (*damaged, *left_out(rows))],
        draws=draw_summary(report.receipt["rows"]),
        config=yaml.safe_dump(report.config, sort_keys=False, allow_unicode=True),
    )


def _figures(report: RunReport, rows: Sequence[TrajectoryRow], references: Sequence[Reference]) -> dict[str, Markup]:
    """Name of a figure -> SVG; a figure without anything to show is left out."""
    shown: dict[str, Markup] = {}

    def show(name: str, figure: figures.Figure, description: str) -> None:
        shown[name] = inline(figure, description)

    if report.metrics:
        vocabulary = report.config["model"]["vocab_size"]
        show("loss", figures.loss_figure(report.metrics, vocabulary), "Training and held-out loss over steps")
    if figures.kind(report.metrics, "train"):
        show("rate", figures.rate_figure(report.metrics), "Learning rate over steps")
        show("speed", figures.speed_figure(report.metrics), "Tokens a second over steps")
    gradients = figures.kind(report.metrics, "gradients")
    if gradients:
        show("gradients", gradients_figure(gradients), "Sizes of the gradient's entries over steps, by component")
    if rows:
        for measure in TRAJECTORIES:
            show(measure, measure_figure(rows, references, measure), f"{NAMES[measure]} over steps, by component")
    weights = report.weights_before, report.weights_after
    if any(weights):
        show("components", figures.components_figure(*weights), "Rank and scale of each component")
        if any(row.layer for rows in weights for row in rows):
            show("depth", figures.depth_figure(*weights), "Stable rank over depth, by component")
    if report.sink_before or report.sink_after:
        show("sink", figures.sink_figure(report.sink_before, report.sink_after), "Sink score over layers")
    return shown


def _trajectory(report: RunReport) -> tuple[list[TrajectoryRow], list[Reference], list[str]]:
    """What the run recorded of its weights, from what was measured before the first step on; Gaussian values; and a
    line for each damaged row. Nothing where nothing was recorded."""
    name, rows, damaged = "this run", [], []
    for row in figures.kind(report.metrics, "weights"):
        try:
            rows += recorded(name, row)
        except (KeyError, TypeError, AttributeError, ValueError):
            damaged.append(f"step {row['step']}: the row of kind weights in {METRICS} is damaged")
    if not rows:
        return [], [], damaged
    gaussians = references(name, report.facts, lambda m, n: measures(gaussian_stats(m, n)))
    return [*initial(name, report.weights_before), *rows], gaussians, damaged


def parameter_counts(receipt_rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Parameters in all, and without the embeddings (token and position tables and an untied head)."""
    sizes = []
    for row in receipt_rows:
        sizes.append((row["role"], math.prod(row["shape"])))
    return {
        "total": sum(size for _, size in sizes),
        "without_embeddings": sum(size for role, size in sizes if role not in (*EMBEDDING_ROLES, "head")),
    }


def draw_summary(receipt_rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The receipt by role: how many draws of which distribution, and how far the measured std is from its target."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    order = {role: place for place, role in enumerate(ROLES)}
    for row in sorted(receipt_rows, key=lambda row: order.get(row["role"], len(order))):
        groups.setdefault((row["role"], row["distribution"]), []).append(row)
    summary = []
    for (role, distribution), rows in groups.items():
        deviations = [abs(row["std"] / row["target_std"] - 1) for row in rows if row["target_std"]]
        summary.append(
            {
                "role": role,
                "distribution": distribution,
                "draws": len(rows),
                "target_std": rows[0]["target_std"],
                "std": sum(row["std"] for row in rows) / len(rows),
                "worst": max(deviations, default=None),
            }
        )
    return summary
