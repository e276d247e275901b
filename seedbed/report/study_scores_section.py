"""The section of a study's page on what its models answer: texts by domain, and minimal pairs."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from seedbed.report.render import number
from seedbed.report.sections import Picture, Section, TableView
from seedbed.report.study_figures import arm_look, bars, legend
from seedbed.report.study_rows import StudyResult
from seedbed.report.study_tables import plain_table
from seedbed.report.study_trend_rows import ScoreRow
from seedbed.report.style import GREY, WIDTH, panels, style

FOREMOST = {"bits per byte": "bits per byte less the baseline's", "accuracy": "accuracy on minimal pairs, %"}
"""Metrics that are drawn, with how."""
MOST_SUBSETS = 12
SHOWN = ("bits per byte", "perplexity", "accuracy")
"""Metrics of the table."""


def score_sections(result: StudyResult) -> list[Section]:
    """Scores of the models of the whole budget, where the study evaluates them."""
    if not result.scores:
        return []
    sizes = [size for size in result.sizes if any(row.size == size for row in result.scores)]
    size = sizes[-1]
    bars = "one seed, no error bars" if result.smoke else "means over seeds, bars are 95 % intervals over seeds"
    picture = Picture(
        "scores",
        scores_figure(result.scores, result.arms, size),
        f"At {size}; {bars}. Bits per byte are differences to {result.baseline}: below zero is better. Dotted: chance. "
        "Bars of accuracy are drawn as far as shares go. "
        f"At most {MOST_SUBSETS} subsets a panel; scores.csv has all, with paradigms and differences.",
        "Bits per byte by domain and accuracy on minimal pairs, by arm.",
    )
    return [Section("What they score", result.evaluated, [picture], [_table(result, size) for size in sizes])]


def scores_figure(rows: Sequence[ScoreRow], arms: Sequence[str], size: str) -> Figure:
    """A panel a metric; subsets along it, arms side by side."""
    rows = [_percent(row) for row in rows if row.size == size and row.metric in FOREMOST and _is_group(row.subset)]
    metrics = [metric for metric in FOREMOST if any(row.metric == metric for row in rows)]
    with style():
        figure, axes = panels(len(metrics), 1, WIDTH, 0.9 + 2.7 * len(metrics))
        for panel, metric in zip(axes, metrics, strict=True):
            kind = [row for row in rows if row.metric == metric]
            subsets = list(dict.fromkeys(row.subset for row in kind))[:MOST_SUBSETS]
            for index, arm in enumerate(arms):
                own = [row for row in kind if row.arm == arm and row.subset in subsets]
                if metric != "accuracy":
                    own = [
                        replace(row, mean=row.more, low=row.more_low, high=row.more_high)
                        for row in own
                        if row.more is not None
                    ]
                aside = 0.7 * (index - (len(arms) - 1) / 2) / len(arms)
                at = [subsets.index(row.subset) + aside for row in own]
                bars(panel, at, own, **arm_look(index, arm) | {"linestyle": "none", "markersize": 5})
            chance = 50 if metric == "accuracy" else 0
            panel.axhline(chance, color=GREY, linewidth=0.9, linestyle=":" if chance else "-")
            if chance:  # intervals of few seeds reach beyond what can be
                low, high = panel.get_ylim()
                panel.set_ylim(max(low, -3), min(high, 103))
            turned = len(subsets) > 4
            panel.set_xticks(
                range(len(subsets)), subsets, rotation=20 if turned else 0, ha="right" if turned else "center"
            )
            panel.set_title(FOREMOST[metric])
        return legend(figure, axes[::-1])  # the last one first, which has the baseline


def _table(result: StudyResult, size: str) -> TableView:
    """An arm a column; groups of items, not the single paradigms of minimal pairs."""
    own = {(row.metric, row.subset, row.arm): _percent(row) for row in result.scores if row.size == size}
    asked = dict.fromkeys((metric, subset) for metric, subset, _ in own if _is_group(subset))
    arms = [arm for arm in result.arms if any(arm == other for _, _, other in own)]
    lines = [
        [
            f"{metric} (%)" if metric == "accuracy" else metric,
            subset,
            *(_told(own.get((metric, subset, arm))) for arm in arms),
        ]
        for shown in SHOWN
        for metric, subset in asked
        if metric == shown
    ]
    told = f"Scores at {size}" + ("" if result.smoke else ", means over seeds ± 95 % interval")
    return plain_table(told, ["metric", "subset", *arms], lines, left=2)


def _percent(row: ScoreRow) -> ScoreRow:
    """Shares and what they have more in percent and points, as `seedbed eval` shows them; other scores as they are."""
    if row.unit != "share":
        return row
    values = ("mean", "low", "high", "more", "more_low", "more_high")
    shown = {name: None if (value := getattr(row, name)) is None else 100 * value for name in values}
    return replace(row, **shown)


def _is_group(subset: str) -> bool:
    """All, a domain, a language or a field of grammar; else a single paradigm."""
    return subset == "all" or ": " in subset


def _told(row: ScoreRow | None) -> str:
    if row is None:
        return "–"
    spread = "" if row.high is None else f" ± {number(row.high - row.mean, 2)}"
    return f"{number(row.mean, 4)}{spread}"
