"""What was looked at in the models of a study: streams, norms, sinks, gradients, weights, losses of tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from seedbed.measure.gains import difficulty_bins, probability_gain
from seedbed.measure.table import Rows
from seedbed.report.study_trend_rows import GradientRow, LayerRow, LookRow, TokenGainRow, WeightsRow
from seedbed.study.compared import Compared, Done, arm, named, together
from seedbed.study.statistics import mean_interval

TENTHS = 10
WEIGHTS = ("rms", "stable_rank", "entropy_rank", "row_cosine", "gaussian_stable_rank", "gaussian_row_cosine")
"""Measures of components that a report follows through training."""
PROFILES = ("rms", "stable_rank", "entropy_rank", "rank_share", "condition", "row_cosine")
"""Measures of components layer by layer."""
SINKS = {
    "mean": "mean",
    "largest_layer": "largest layer",
    "share_above": "share of heads above 0.3",
    "uniform": "uniform",
}


def look_rows(found: Compared) -> Rows[LookRow]:
    """Numbers before the first step and after the last, means over seeds."""
    rows: Rows[LookRow] = Rows()
    for cell, share, done in found.each():
        values: dict[tuple[str, str, str], list[float]] = {}
        for one in done.values():
            for when, looked in (("before", one.outcome.before), ("after", one.outcome.after)):
                for measure, part, value in _numbers(looked):
                    values.setdefault((measure, part, when), []).append(value)
        for (measure, part, when), each in values.items():
            mean = mean_interval(each)
            told = mean.mean, mean.low, mean.high, mean.n
            rows.append(LookRow(arm(cell.levels), cell.size, share, measure, part, when, *told))
    return rows


def gradient_rows(found: Compared) -> Rows[GradientRow]:
    """Gradient norms of the runs of the whole budget."""
    rows: Rows[GradientRow] = Rows()
    for cell, _, done in found.each(1.0):
        values: dict[float, list[tuple[float, float]]] = {}
        for norms in together([one.outcome.gradient_norms for one in done.values()]):
            for tokens, median, largest in norms:
                values.setdefault(tokens, []).append((median, largest))
        for tokens, each in sorted(values.items()):
            medians, largest = zip(*each, strict=True)
            told = mean_interval(medians).mean, max(largest), len(each)
            rows.append(GradientRow(arm(cell.levels), cell.size, tokens, *told))
    return rows


def weights_rows(found: Compared) -> Rows[WeightsRow]:
    """Measures of the weights by component, of the runs of the whole budget."""
    rows: Rows[WeightsRow] = Rows()
    for cell, _, done in found.each(1.0):
        values: dict[tuple[float, str, str], list[float]] = {}
        for weights in together([one.outcome.weights for one in done.values()]):
            for tokens, components in weights:
                for component in components:
                    for measure in WEIGHTS:
                        if (value := component.get(measure)) is not None:
                            values.setdefault((tokens, component["role"], measure), []).append(value)
        for (tokens, component, measure), each in values.items():
            mean = mean_interval(each)
            told = mean.mean, mean.low, mean.high, mean.n
            rows.append(WeightsRow(arm(cell.levels), cell.size, tokens, component, measure, *told))
    return rows


def layer_rows(found: Compared) -> Rows[LayerRow]:
    """Profiles over depth of each component, of the runs of the whole budget, means over seeds."""
    rows: Rows[LayerRow] = Rows()
    for cell, _, done in found.each(1.0):
        values: dict[tuple[Any, ...], list[float]] = {}
        for one in done.values():
            for when, looked in (("before", one.outcome.before), ("after", one.outcome.after)):
                for row in looked.get("profiles", ()):
                    for measure in PROFILES:
                        if row[measure] is not None:
                            place = row["role"], row["layer"], row["depth"], measure, when
                            values.setdefault(place, []).append(row[measure])
        for (role, layer, depth, measure, when), each in values.items():
            mean = mean_interval(each)
            told = mean.mean, mean.low, mean.high, mean.n
            rows.append(LayerRow(arm(cell.levels), cell.size, role, layer, depth, measure, when, *told))
    return rows


def token_gain_rows(found: Compared) -> tuple[Rows[TokenGainRow], list[str]]:
    """Gain of each level over the baseline by tenths of difficulty, and over all tokens; pairs of runs of a seed."""
    rows, problems = Rows[TokenGainRow](), []
    base = named(found.plan.spec.compare.axis, found.plan.spec.compare.baseline)
    for one in found.against():
        gains = []
        for pair in found.pairs(one, 1.0):
            losses = [_token_losses(run) for run in pair]
            if any(each is None for each in losses):
                continue
            a, b = (each for each in losses if each is not None)
            if a.shape != b.shape or len(a) < TENTHS:
                seed = pair[0].trial.seed
                problems.append(
                    f"token gains of {one.level}, {one.cell.size}, seed {seed}: {len(a)} tokens against {len(b)}"
                )
                continue
            gains.append(_by_tenth(a, b))
        if not gains:
            continue
        for tenth in range(TENTHS + 1):
            tokens, difficulty, _, _ = gains[0][tenth]
            gain = mean_interval([seed[tenth][2] for seed in gains])
            likely = mean_interval([seed[tenth][3] for seed in gains])
            numbers = gain.mean, gain.low, gain.high, likely.mean, likely.low, likely.high, gain.n
            place = one.others, one.level, base, one.cell.size, 1.0
            rows.append(TokenGainRow(*place, tenth, tokens, difficulty, *numbers))
    return rows, problems


def _numbers(looked: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(measure, part, value) of a model."""
    if residual := looked.get("residual"):
        yield "flow", "", residual["flow"]
        yield "embedding rms", "", residual["embed_rms"]
        for layer in residual["layers"]:
            for branch in ("attn", "mlp"):
                yield f"{branch} / stream", f"layer {layer['layer']}", layer[branch]
    if masking := looked.get("masking"):
        for norm, value in masking.items():
            yield "masking", norm, value
        yield "masking", "first norm", next(iter(masking.values()))
        yield "masking", "worst norm", max(masking.values())
    for field, measure in SINKS.items():
        if sink := looked.get("sink"):
            yield f"sink: {measure}", "", sink[field]
    for component in looked.get("weights", ()):
        for measure in WEIGHTS:
            if component.get(measure) is not None:
                yield f"weights: {measure}", component["role"], component[measure]


def _token_losses(run: Done) -> np.ndarray | None:
    """Of all documents, one after another, [N]; None where they were not looked at."""
    documents = run.outcome.after.get("token_losses")
    return None if documents is None else np.concatenate([np.asarray(each, dtype=float) for each in documents])


def _by_tenth(base: np.ndarray, level: np.ndarray) -> list[tuple[int, float, float, float]]:
    """(tokens, difficulty, gain, gain of probability) over all tokens, then by tenth of difficulty, easiest first."""
    difficulty = (base + level) / 2  # [N]
    gain, likely = base - level, probability_gain(base, level)  # [N]
    tenths = difficulty_bins(difficulty, TENTHS)  # [N]
    chosen = [np.ones(len(base), dtype=bool), *(tenths == at for at in range(TENTHS))]
    return [
        (int(kept.sum()), float(difficulty[kept].mean()), float(gain[kept].mean()), float(likely[kept].mean()))
        for kept in chosen
    ]
