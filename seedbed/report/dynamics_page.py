"""The page of `seedbed analyze dynamics`: how the weights of runs moved, all layers together and one by one."""

from collections.abc import Mapping

from seedbed.measure.cosine import MEAN_ROWS
from seedbed.measure.trajectory import MEASURES, TurnRow, thinned
from seedbed.report.dynamics_figures import Over, layer_figure, measure_figure
from seedbed.report.dynamics_rows import Dynamics
from seedbed.report.measures import EFFECTIVE_RANK, ENERGY, NAMES, heading
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView

MOST_LAYERS = 8  # figures of single layers; the table has all of them
BRIEF = ("stable_rank", "row_cosine")

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
                (
                    "The claim to test (S0 figs. 4 to 8): under AdamW the stable rank falls steeply from a small "
                    "initialization (γ = 1) and climbs back, while from γ = ½ it starts high and drifts. Orthogonal "
                    "updates (Muon) may hide this. Rows that align show as a mean |cos| above the Gaussian value.",
                ),
                together,
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
        brief = measure in BRIEF
        title = f"{heading(measure)}: means over the layers"
        tables.append(TableView(title, columns, cells, left=2, brief=brief, folded=not brief))
    return tables


def _runs_table(result: Dynamics, steps: dict[str, int]) -> TableView:
    columns = ("run", "law", "optimizer", "seed", "steps", "shown", "checkpoints", "recorded", "passed over")
    cells = [
        (
            run.name, run.law, run.optimizer, str(run.seed), count(run.steps), count(steps[run.name]),
            count(run.checkpoints), count(run.recorded), count(len(run.passed_over)),
        )
        for run in result.runs
    ]  # fmt: skip
    return TableView("Runs and the steps that are shown", columns, cells, left=3)


def _problems(result: Dynamics) -> list[str]:
    return [f"{run.name}: {line}" for run in result.runs for line in run.passed_over]
