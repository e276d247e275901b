"""The page of several models' weights, side by side."""

from collections.abc import Mapping
from dataclasses import fields

from seedbed.facts.fact import in_order
from seedbed.laws.cohort import Cohort
from seedbed.measure.rows import ComponentRow, ratio
from seedbed.report.compare_rows import Comparison
from seedbed.report.measures import heading
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.spectra_figures import mean_spectra_figure
from seedbed.report.weights_figures import components_figure, depth_figure
from seedbed.report.weights_page import (
    DEFINITIONS,
    cosines_picture,
    cosines_roles,
    quantised,
    values_picture,
    zero_rows_told,
)
from seedbed.report.weights_rows import Weights

TABLES = {
    **{name: heading(name) for name in ("std", "stable_rank", "entropy_rank", "er90", "er95", "er99")},
    "condition_median": "κ, median",
    "condition": "κ, mean",
    "row_cosine": heading("row_cosine"),
}
FOLDED = ("er90", "er95", "condition")
BRIEF = ("stable_rank", "entropy_rank", "row_cosine")
"""What the terminal shows of the components: about forty lines."""


def compare_page(result: Comparison, cohort: Cohort, provenance: Mapping[str, str]) -> Page:
    """What `seedbed analyze compare` shows of ``result``, before ``cohort``."""
    models = result.models
    names = ", ".join(model.name for model in models)
    members = ", ".join(f"{one.name} ({one.layers} layers, width {one.width})" for one in cohort.members)
    return Page(
        title="Weights compared",
        lead=f"{names}: every matrix, by component and depth. A column or a line is one set of weights: differences "
        f"have no error bar, and another seed of either would give others.{quantised(models)}",
        sections=_sections(models, cohort),
        definitions={
            **DEFINITIONS,
            "cohort": f"Mean ± standard deviation over {len(cohort.members)} checkpoints at common relative depths, as "
            f"`seedbed analyze cohort` measured them: {members}. RMS goes with the width, so that it compares with "
            f"models of like width alone. {cohort.note}",
        },
        provenance=provenance,
    )


def _sections(models: list[Weights], cohort: Cohort) -> list[Section]:
    components = Picture(
        "components",
        components_figure(models),
        "By component: the mean over its matrices (of κ the median), and each matrix; horizontal axes are logarithmic, "
        "but for ER. The black bars are what Gaussian matrices of the same shapes have.",
        "Scale, ranks, condition and row cosines of each component and checkpoint",
    )
    sections = [
        Section("Checkpoints", tables=[_overview(models)]),
        Section(
            "Components",
            zero_rows_told(models),
            pictures=[components],
            tables=[_table(models, field) for field in TABLES],
        ),
    ]
    if any(model.profiles for model in models):
        depth = Picture(
            "depth",
            depth_figure(models, cohort),
            "One row of panels per component, one value per layer, the mean over its experts where it has several. r "
            "is the "
            "smaller side of the matrix. The band is the cohort's mean ± standard deviation, for the components and "
            "measures that it has. Vertical axes differ and need not start at zero.",
            "Measures over depth by component and checkpoint, before the cohort",
        )
        sections.append(Section("Depth", pictures=[depth]))
    weighed = [model for model in models if model.spectra]
    if weighed:
        sections += _inside(models)
    problems = [f"{model.name}: {line}" for model in models for line in model.problems]
    problems += [f"{m.name}: {count(m.unmeasured)} matrices were not measured" for m in models if m.unmeasured]
    if problems:
        sections.append(Section("Without a number", problems=problems))
    return sections


def _inside(models: list[Weights]) -> list[Section]:
    """What only weights themselves show, not the measures that a run kept of its first ones."""
    absent = [model.name for model in models if not model.spectra]
    said = [f"Not shown: {', '.join(absent)}, of which measures were kept and not weights."] if absent else []
    spectra = Picture(
        "spectra",
        mean_spectra_figure(models),
        "Singular values as shares of the largest, logarithmic, over i / r: the median over a component's matrices, "
        "and the range of all. All values are in spectra.csv. Dashed: a Gaussian matrix of that shape.",
        "Singular-value spectra by component and checkpoint",
    )
    sections = [Section("Spectra", said, [spectra]), Section("Values", said, [values_picture(models)])]
    pictures = []
    for role in cosines_roles(models):
        lines = [(model.name, [one for one in model.cosines if one.role == role]) for model in models]
        pictures.append(cosines_picture(f"cosines-{role.replace('.', '-')}", [line for line in lines if line[1]]))
    return [*sections, Section("Directions of rows", said, pictures)] if pictures else sections


def _overview(models: list[Weights]) -> TableView:
    rows = []
    for model in models:
        rows.append([model.name, count(model.parameters), count(model.layers), model.measured])
    return TableView("What is compared", ["checkpoint", "parameters", "layers", "matrices measured"], rows)


def _table(models: list[Weights], field: str) -> TableView:
    """One measure: a line a component, a column a checkpoint, the ratio to Gaussian matrices behind the value."""
    by_role: list[dict[str, ComponentRow]] = [{row.role: row for row in model.components} for model in models]
    rows = [
        [role, *(_cell(roles.get(role), field) for roles in by_role)]
        for role in in_order(role for roles in by_role for role in roles)
    ]
    compared = f"gaussian_{field}" in {one.name for one in fields(ComponentRow)}
    head = f"{TABLES[field]} (ratio to Gaussian)" if compared else TABLES[field]
    columns = ["component", *(model.name for model in models)]
    return TableView(head, columns, rows, brief=field in BRIEF, folded=field in FOLDED)


def _cell(row: ComponentRow | None, field: str) -> str:
    value = None if row is None else getattr(row, field)
    share = ratio(value, getattr(row, f"gaussian_{field}", None))
    return number(value) if share is None else f"{number(value)} ({number(share, 2)})"
