"""The page of `seedbed analyze dynamics`: how the weights of runs moved, all layers together and one by one."""

from collections.abc import Mapping
from typing import Literal

from seedbed.facts.fact import in_order
from seedbed.measure.cosine import MEAN_ROWS
from seedbed.measure.trajectory import MEASURES, TurnRow, thinned
from seedbed.report.dynamics_claims import claims
from seedbed.report.dynamics_figures import Over, layer_figure, measure_figure
from seedbed.report.dynamics_rows import Dynamics
from seedbed.report.measures import EFFECTIVE_RANK, ENERGY, NAMES, heading
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView

MOST_LAYERS = 8  # figures of single layers; the table has all of them
SIDE_BY_SIDE = 4  # runs that a table in the terminal has room for
SUMMED_UP: dict[str, Literal["least", "most"]] = {"stable_rank": "least", "row_cosine": "most"}
"""What a summary shows, and where that turns when rows align and rank is lost."""

DEFINITIONS = {
    "Stable rank": "‖W‖²_F / σ₁², σ the singular values in descending order (S0).",
    "Mean |cos| of rows": "Mean absolute cosine over pairs of different rows; of "
    f"{MEAN_ROWS:,} evenly spaced rows where there are more (S0 fig. 4).",
    "Effective rank": EFFECTIVE_RANK,
    "ER@q % (share of r)": ENERGY,
    "Std": "Of all entries of a matrix around their mean.",
    "Mean, range": "Over the matrices of a component, one a layer: the range is how layers differ, no error bar. A "
    "step at which one of them has no number is left out of the mean.",
    "Gaussian": "The same measure of a matrix of independent normal entries of that shape: means over drawn spectra; "
    "the mean |cos| exactly. Shape alone makes that much.",
    "Step": "Completed optimizer steps. Step 0 is what the run measured before its first step (initial.json); the "
    "others are its checkpoints, and between them what it recorded itself (train.weights_every).",
}


def dynamics_page(result: Dynamics, provenance: Mapping[str, str], over: Over = "step") -> Page:
    """The page of the runs of ``result``, with steps or supervised tokens along the axis."""
    rows, references = result.rows, result.references
    layers = sorted({row.layer for row in rows if row.layer is not None})
    shown = thinned(layers, MOST_LAYERS)
    names = ", ".join(run.name for run in result.runs)
    steps = {run.name: len({row.step for row in rows if row.run == run.name}) for run in result.runs}
    together = [
        Picture(
            name,
            measure_figure(rows, references, name, over),
            f"{heading(name)} of {names}. Lines: means over the layers; bands: from the least to the greatest layer.",
            f"{NAMES[name]} over training, by component",
        )
        for name in MEASURES
    ]
    single = [
        Picture(
            f"layer_{layer:02d}",
            layer_figure(rows, references, layer, over),
            f"Layer {layer}, each matrix by itself.",
            f"Measures of the matrices of layer {layer} over training",
        )
        for layer in shown
    ]
    left = (
        f" Shown are {len(shown)} of {len(layers)} layers; the table rows.csv has all."
        if len(shown) < len(layers)
        else ""
    )
    return Page(
        title=f"Dynamics of {names}",
        lead=f"Rank, alignment of rows and scale of every matrix of {len(result.runs)} "
        f"run{'s' if len(result.runs) > 1 else ''} over training. Each run has one seed: no number here has an error "
        "bar over seeds, and a difference between runs may be one of seeds.",
        sections=[
            Section(
                "All layers together",
                claims({run.name: run.optimizer for run in result.runs}),
                together,
                _summaries(result),
            ),
            Section("First, turning points, last", tables=_turn_tables(result.turns)),
            Section("Layer by layer", (f"The same of each matrix, without a mean.{left}",), single),
            Section("Runs", tables=[_runs_table(result, steps)], problems=_problems(result)),
        ],
        definitions=DEFINITIONS,
        provenance=provenance,
        tiles={
            "runs": count(len(result.runs)),
            "checkpoints measured": count(sum(run.checkpoints for run in result.runs)),
            "steps recorded by the runs": count(sum(run.recorded for run in result.runs)),
            "matrices of a run": count(len({(row.component, row.layer) for row in rows})),
        },
    )


def _summaries(result: Dynamics) -> list[TableView]:
    """A line a component, a cell a run; of two measures, or of the first one where the runs need several tables."""
    names = [run.name for run in result.runs]
    several = len(names) > SIDE_BY_SIDE
    tables = []
    for measure, turn in list(SUMMED_UP.items())[: 1 if several else 2]:
        own = {(row.component, row.run): row for row in result.turns if row.measure == measure}
        components = in_order(component for component, _ in own)
        for begin in range(0, len(names), SIDE_BY_SIDE):
            shown = names[begin : begin + SIDE_BY_SIDE]
            cells = []
            for component in components:
                rows = [own.get((component, run)) for run in shown]
                gaussians = {number(row.gaussian) for row in rows if row is not None}
                cells.append([component, *(_moved(row, turn) for row in rows), " or ".join(sorted(gaussians))])
            told = f"{heading(measure)}: first → {turn} @step → last, means over the layers"
            tables.append(TableView(told, ["component", *shown, "Gaussian"], cells))
    return tables


def _moved(row: TurnRow | None, turn: Literal["least", "most"]) -> str:
    if row is None:
        return "–"
    value, step = (row.least, row.least_step) if turn == "least" else (row.most, row.most_step)
    return f"{number(row.first, 2)}→{number(value, 2)}@{step}→{number(row.last, 2)}"


def _turn_tables(rows: list[TurnRow]) -> list[TableView]:
    """One a measure: what a component's mean was at first, at its turning points and at last, runs below each other."""
    columns = ("component", "run", "matrices", "first", "least", "at step", "most", "at step", "last", "Gaussian")
    components = list(dict.fromkeys(row.component for row in rows))
    tables = []
    for measure in MEASURES:
        own = sorted((row for row in rows if row.measure == measure), key=lambda row: components.index(row.component))
        cells = [
            (
                row.component, row.run, count(row.matrices), number(row.first), number(row.least),
                count(row.least_step), number(row.most), count(row.most_step), number(row.last), number(row.gaussian),
            )
            for row in own
        ]  # fmt: skip
        title = f"{heading(measure)}: means over the layers"
        tables.append(TableView(title, columns, cells, left=2, brief=False, folded=measure not in SUMMED_UP))
    return tables


def _runs_table(result: Dynamics, steps: dict[str, int]) -> TableView:
    columns = ("run", "law", "optimizer", "learning rate", "seed", "steps", "shown", "checkpoints", "recorded",
               "passed over")  # fmt: skip
    cells = [
        (
            run.name, run.law, run.optimizer, f"{run.learning_rate:g}", str(run.seed), count(run.steps),
            count(steps[run.name]), count(run.checkpoints), count(run.recorded), count(len(run.passed_over)),
        )
        for run in result.runs
    ]  # fmt: skip
    return TableView("Runs and the steps that are shown", columns, cells, left=3)


def _problems(result: Dynamics) -> list[str]:
    return [f"{run.name}: {line}" for run in result.runs for line in run.passed_over]
