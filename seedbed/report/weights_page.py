"""The page of one model's weights."""

from collections.abc import Mapping, Sequence

from seedbed.facts.fact import in_order
from seedbed.measure.cosine import MEAN_ROWS
from seedbed.measure.rows import ComponentRow, MatrixRow, ratio
from seedbed.report.measures import EFFECTIVE_RANK, ENERGY, NAMES
from seedbed.report.render import count, number
from seedbed.report.sections import Page, Picture, Section, TableView
from seedbed.report.spectra_figures import CURVES, cosines_figure, densities_figure, spectra_figure
from seedbed.report.weights_figures import components_figure, depth_figure, trends_figure
from seedbed.report.weights_rows import CosineMap, Weights

MEASURES = {
    **{name: NAMES[name] for name in ("stable_rank", "entropy_rank", "er90", "er95", "er99")},
    "condition": "κ",
    "row_cosine": "|cos|",
}
"""What stands beside a Gaussian matrix's, as tables call it."""
ENTRIES = {
    "mean": "mean",
    "std": "std",
    "min": "min",
    "max": "max",
    "rms": "RMS",
    "frobenius": "‖W‖F",
    "spectral": "σ₁",
    "zero_rows": "zero rows",
}
DEFINITIONS = {
    "std, mean, min, max": "Of all entries of a matrix; std around the mean, divided by their number.",
    "RMS": "‖W‖F / √(mn) of an m × n matrix W, ‖W‖F the root of the sum of its squared entries.",
    "σ₁ … σᵣ": "Singular values of W in float64, whatever the weights are stored in; r = min(m, n).",
    "stable rank": "‖W‖F² / σ₁² (S0): r when all singular values are equal, 1 for rank one.",
    "effective rank": EFFECTIVE_RANK,
    "ER@q % (share of r)": ENERGY,
    "κ": "σ₁ / σᵣ, infinite when σᵣ is zero to the precision of the decomposition (S1). Its mean over square matrices "
    "diverges, so the median is beside it.",
    "|cos|": f"Mean absolute cosine over all pairs of different rows, at most {MEAN_ROWS:,} evenly spaced ones (S0). "
    "Rows of zeros, such as padding, have no direction and are left out.",
    "zero rows": "Rows of a matrix without an entry other than zero.",
    "Gaussian, ratio": "The same measure of a matrix of that shape with independent N(0, 1) entries (of ranks and ER "
    "the mean over drawn spectra, of κ the median, |cos| exactly), and the ratio to it: most of what ranks and κ say "
    "about a weight is the shape of the matrix.",
    "attn.qkv": "Queries, keys and values below each other as one joint matrix, as S2 measures them: beside the three, "
    "not in their place, and counted apart from them. Where a model stores them interleaved there is only this one.",
    "relative depth": "layer / (layers − 1): 0 at the first layer, 1 at the last (S2).",
    "S0, S1, S2": "Where a definition is from: the papers on small initialization (S0), on end-to-end training of a "
    "1.2B model (S1), and on component-wise spectral initialization (S2).",
    "z-score": "(value − mean) / std over the layers of one component.",
}


def weights_page(result: Weights, provenance: Mapping[str, str]) -> Page:
    """What `seedbed analyze weights` shows of ``result``; ``provenance`` says how it came about."""
    tiles = {
        "parameters": count(result.parameters),
        "layers": count(result.layers),
        "matrices measured": result.measured,
        "without all numbers": count(sum(row.problem is not None for row in result.matrices if not row.joint)),
    }
    return Page(
        title=f"Weights of {result.name}",
        lead=f"Every matrix of {result.name}, by component and depth. These are measurements of one set of weights: no "
        f"number here has an error bar, and another seed would give others.{quantised([result])}",
        sections=_sections(result),
        definitions=DEFINITIONS,
        provenance=provenance,
        tiles=tiles,
    )


def quantised(models: Sequence[Weights]) -> str:
    """A sentence on weights from GGUF files, which mostly hold a few bits an entry."""
    names = [name for model in models for name in model.files if name.endswith(".gguf")]
    said = f" {', '.join(names)}: as dequantised; what was lost to quantisation is part of every number."
    return said if names else ""


def _sections(result: Weights) -> list[Section]:
    sections = [
        Section(
            "Components",
            [_outline(result)],
            [
                Picture(
                    "components",
                    components_figure([result]),
                    "By component: the mean over its matrices (of κ the median) and each matrix; horizontal axes are "
                    "logarithmic, but for ER. The black bar is what Gaussian matrices of the same shapes have: a rank "
                    "left of it is lower than shape alone makes it, right of it more even than random.",
                    "Scale, ranks, condition and row cosines of each component",
                )
            ],
            component_views(result.components),
        )
    ]
    if result.profiles:
        layered = len({row.layer for row in result.profiles}) > 1
        trends = Picture(
            "trends",
            trends_figure(result),
            "The same, z-scored over the layers of each component: shape without scale.",
            "Z-scored depth trends by component",
        )
        depth = Picture(
            "depth",
            depth_figure([result]),
            "One row of panels per component, one value per layer (marks at some of them), the mean over its experts "
            "where it has several. r is the smaller side of the matrix. Vertical axes differ and need not start at 0.",
            "Measures over depth by component",
        )
        sections.append(Section("Depth", pictures=[depth, trends] if layered else [depth]))
    if result.spectra:
        sections.append(Section("Spectra", pictures=[_spectra(result)]))
    if result.densities:
        sections.append(Section("Values", pictures=[values_picture([result])]))
    if result.cosines:
        lines = [("", [one for one in result.cosines if one.role == role]) for role in cosines_roles([result])]
        sections.append(Section("Directions of rows", pictures=[cosines_picture("cosines", lines)]))
    sections.append(
        Section(
            "Every matrix", zero_rows_told([result]), tables=matrix_views(result.matrices), problems=result.problems
        )
    )
    return sections


def zero_rows_told(models: Sequence[Weights]) -> list[str]:
    """A sentence for each model that has rows of zeros."""
    of = [f" of {model.name}" if len(models) > 1 else "" for model in models]
    return [
        f"Rows of zeros{whose}, left out of |cos|: {', '.join(model.zero_rows)}."
        for whose, model in zip(of, models, strict=True)
        if model.zero_rows
    ]


def _outline(result: Weights) -> str:
    rows = [row for row in result.components if row.stable_rank is not None and row.gaussian_stable_rank is not None]
    if not rows:
        return "No component has a spectrum."
    lowest = min(rows, key=lambda row: (row.stable_rank or 0) / (row.gaussian_stable_rank or 1))
    share = ratio(lowest.stable_rank, lowest.gaussian_stable_rank)
    return (
        f"Furthest below the Gaussian value is the stable rank of {lowest.role}: {number(lowest.stable_rank)}, where "
        f"Gaussian matrices have {number(lowest.gaussian_stable_rank)} ({number(share, 2)} of it)."
    )


def _spectra(result: Weights) -> Picture:
    return Picture(
        "spectra",
        spectra_figure(result),
        f"Singular values as shares of the largest, logarithmic, over i / r; a curve a layer, at most {CURVES} evenly "
        "spaced ones, of experts the first. All values are in spectra.csv. Dashed: a Gaussian matrix of that shape.",
        "Singular-value spectra by component, coloured by layer",
    )


def values_picture(models: Sequence[Weights]) -> Picture:
    """The densities of all entries, for one page or the other."""
    sampled = sorted(row.sampled for model in models for row in model.densities)
    return Picture(
        "densities",
        densities_figure(models),
        "Which shape the entries of each component are distributed in: each less the mean of its matrix, over the std "
        "of its matrix, so that layers of unlike scale do not make heavy tails together; rows of unlike scale within a "
        "matrix still do. On a logarithmic axis, where a normal distribution is a parabola: a Gaussian kernel estimate "
        f"over {count(sampled[0])} to {count(sampled[-1])} entries a component, evenly spaced, as many of each of its "
        "matrices but for those whose entries are all equal. Bumps near the lower edge are a few entries each.",
        "Densities of standardized entries by component, beside the standard normal one",
    )


def cosines_roles(models: Sequence[Weights]) -> list[str]:
    """The roles whose cosines are shown."""
    return in_order(one.role for model in models for one in model.cosines)


def cosines_picture(name: str, lines: Sequence[tuple[str, Sequence[CosineMap]]]) -> Picture:
    """Heat maps, a line of them for each title; of one page or the other."""
    return Picture(
        name,
        cosines_figure(lines),
        "Cosine of each pair of rows: the first, middle and last layer. Rows are ordered by clustering, so that those "
        "of one direction (red), or of opposite ones (blue), form blocks; where neurons are condensed, few blocks are "
        "left. The diagonal is each row with itself.",
        "Heat maps of cosines between rows",
    )


def component_views(rows: Sequence[ComponentRow]) -> list[TableView]:
    """The component table, in three that no page is too narrow for: ranks and directions; energy; condition."""
    head = ["component", "matrices"]
    ranks = ["std", *(name for what in ("stable_rank", "entropy_rank", "row_cosine") for name in _names(what))]
    energies = [name for what in ("er90", "er95", "er99") for name in _names(what)]
    cells = [[row.role, str(row.matrices)] for row in rows]
    return [
        TableView(
            "Components: scale, rank, directions of rows",
            [*head, *ranks],
            [
                [*c, number(r.std), *_beside(r, "stable_rank", "entropy_rank", "row_cosine")]
                for c, r in zip(cells, rows, strict=True)
            ],
        ),
        TableView(
            "Components: energy",
            [*head, *energies],
            [[*c, *_beside(r, "er90", "er95", "er99")] for c, r in zip(cells, rows, strict=True)],
        ),
        TableView(
            "Components: condition",
            [*head, "κ median", "Gaussian", "ratio", "κ mean"],
            [[*c, *_beside(r, "condition_median"), number(r.condition)] for c, r in zip(cells, rows, strict=True)],
        ),
    ]


def _names(measure: str) -> list[str]:
    return [MEASURES[measure], "Gaussian", "ratio"]


def _beside(row: ComponentRow, *fields: str) -> list[str]:
    cells = []
    for field in fields:
        value, gaussian = getattr(row, field), getattr(row, f"gaussian_{field}")
        cells += [number(value), number(gaussian), number(ratio(value, gaussian))]
    return cells


def matrix_views(rows: Sequence[MatrixRow]) -> list[TableView]:
    """Every measure of every matrix, in two folded tables."""
    entries = [[row.name, f"{row.rows}×{row.columns}", *(number(getattr(row, f)) for f in ENTRIES)] for row in rows]
    ranks = [
        [
            row.name,
            *(number(getattr(row, prefix + field)) for field in MEASURES for prefix in ("", "gaussian_", "ratio_")),
        ]
        for row in rows
    ]
    names = [name for measure in MEASURES for name in _names(measure)]
    folded = {"brief": False, "folded": True}
    return [
        TableView("Entries of every matrix", ["matrix", "shape", *ENTRIES.values()], entries, left=2, **folded),
        TableView("Ranks, condition and cosines of every matrix", ["matrix", *names], ranks, **folded),
    ]
