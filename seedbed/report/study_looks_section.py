"""The section of a study's page on what its models look like."""

from seedbed.report.sections import Picture, Section
from seedbed.report.study_looks_figures import LOOKS, layers_figure, looks_figure, token_gains_figure, weights_figure
from seedbed.report.study_looks_tables import look_tables
from seedbed.report.study_rows import StudyResult

PROFILES = {"rms": "Root mean square of entries", "rank_share": "Entropy rank over the smaller side of each matrix"}


def observed_sections(result: StudyResult) -> list[Section]:
    """Streams, norms, sinks, weights and gains on tokens, as far as the study observes them."""
    rows = [row for row in result.looks if row.share == 1.0]
    pictures, bars = [], "without error bars" if result.smoke else "bars are 95 % intervals"
    if any((row.measure, row.part) in LOOKS for row in rows):
        even = (
            " Dotted: the sink score of even attention." if any(row.measure == "sink: uniform" for row in rows) else ""
        )
        pictures.append(
            Picture(
                "looks",
                looks_figure(rows, result.arms, result.sizes),
                f"Hollow: before the first step; filled: after the last. Means over seeds, {bars}. The whole budget."
                + even,
                "Residual flow, masking and sinks by arm and size.",
            )
        )
    if result.weights:
        size = [size for size in result.sizes if any(row.size == size for row in result.weights)][-1]
        pictures.append(
            Picture(
                "weights",
                weights_figure(result.weights, result.arms, size),
                f"Weights of each component at {size}, medians over its matrices, means over seeds; {bars}. Other "
                f"sizes are "
                "in weights.csv.",
                "Stable rank and row cosines of components over tokens.",
            )
        )
    if result.layers:
        size = [size for size in result.sizes if any(row.size == size for row in result.layers)][-1]
        for measure, told in PROFILES.items():
            pictures.append(
                Picture(
                    f"profiles_{measure}",
                    layers_figure(result.layers, result.arms, size, measure),
                    f"{told} over depth at {size}, before the first step and after the last, means over seeds; {bars}. "
                    "Arms that are alike hide one another. Other sizes and measures are in layers.csv.",
                    f"{told} by component and layer, before and after training.",
                )
            )
    if result.token_gains:
        pictures.append(
            Picture(
                "token_gains",
                token_gains_figure(result.token_gains, result.sizes),
                f"Gain over {result.baseline} on tokens of each tenth of difficulty, means over seeds; {bars}.",
                "Gain by tenth of difficulty.",
            )
        )
    tables = look_tables(result)
    return [Section("What the models look like", pictures=pictures, tables=tables)] if tables or pictures else []
