"""Scores as they are shown: shares in percent, what belongs together beside each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seedbed.eval.evaluation import Evaluation
from seedbed.eval.paired import Paired
from seedbed.eval.perplexity import PER_TOKEN
from seedbed.eval.scores import ALL, Score
from seedbed.report.render import number, signed

Z = 1.96
"""Standard errors to each side of a score: 95 % of normal draws."""


@dataclass(frozen=True)
class Line:
    """One metric on one subset: the scores of the models, in their order, and the difference of two."""

    task: str
    subset: str
    metric: str
    unit: str
    better: str
    scores: tuple[Score | None, ...]
    difference: Paired | None

    @property
    def name(self) -> str:
        return self.task if self.subset == ALL else self.subset

    @property
    def kind(self) -> str:
        """What the subset is one of: `domain` of `domain: code`; empty for a part such as a paradigm."""
        return self.subset.rpartition(": ")[0]

    @property
    def is_detail(self) -> bool:
        """One of many rows that a reader looks up: a part of a task, and metrics a token of a group."""
        return self.subset != ALL and (not self.kind or self.metric in PER_TOKEN)

    @property
    def gain(self) -> bool | None:
        """Whether the second model is better; None where it is neither, or there is none."""
        if self.difference is None or self.difference.difference == 0:
            return None
        return (self.difference.difference > 0) == (self.better == "higher")


def lines_of(result: Evaluation) -> list[Line]:
    """The lines of all metrics, in the order of the scores."""
    models = [row.name for row in result.models]
    by_key: dict[tuple[str, str, str], dict[str, Score]] = {}
    for score in result.scores:
        by_key.setdefault((score.task, score.subset, score.metric), {})[score.model] = score
    differences = {(one.task, one.subset, one.metric): one for one in result.differences}
    found = []
    for key, own in by_key.items():
        any_score = next(iter(own.values()))
        scores = tuple(own.get(model) for model in models)
        found.append(Line(*key, any_score.unit, any_score.better, scores, differences.get(key)))
    return found


def drawn(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """What figures show, by axis label; metrics a token, which say the same as bits per byte, stand in the tables."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.metric not in PER_TOKEN:
            found.setdefault(axis_label(line), []).append(line)
    return found


def axis_label(line: Line) -> str:
    unit = {"share": "%", "": ""}.get(line.unit, line.unit)
    unit = f" ({unit})" if unit and unit != line.metric.replace(" per ", "/") else ""
    return f"{line.metric}{unit}, {line.better} is better"


def scaled(value: float, unit: str) -> float:
    """As it is drawn: a share in percent."""
    return 100 * value if unit == "share" else value


def shown(score: Score | None) -> str:
    if score is None:
        return "–"
    return f"{100 * score.value:.2f}" if score.unit == "share" else number(score.value, 5)


def shown_error(score: Score | None) -> str:
    return "–" if score is None or score.stderr is None else number(scaled(score.stderr, score.unit), 2)


def shown_gain(value: float | None, unit: str) -> str:
    """A difference with its sign: shares in points, others to four decimals."""
    return "–" if value is None else signed(scaled(value, unit), 2 if unit == "share" else 4)


def shown_interval(line: Line) -> str:
    one = line.difference
    if one is None or one.low is None or one.high is None:
        return "–"
    return f"{shown_gain(one.low, line.unit)} to {shown_gain(one.high, line.unit)}"


def shown_unit(lines: Sequence[Line]) -> list[str]:
    """The metric of each line with its unit and an arrow to where it is better."""
    arrows = {"higher": "↑", "lower": "↓"}
    return [f"{line.metric}{' (%)' if line.unit == 'share' else ''} {arrows[line.better]}" for line in lines]
