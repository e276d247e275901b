"""How the measures of a run's matrices move over its steps: rows, curves over them, and where these turn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from seedbed.facts.fact import ParameterFact, in_order
from seedbed.measure.rows import WeightRow
from seedbed.measure.spectra import MatrixStats

MEASURES = ("stable_rank", "row_cosine", "entropy_rank", "er99", "std")
"""Fields of MatrixStats that are followed (S0 figs. 4 to 8, S2, S1)."""

SCALE_FREE = tuple(name for name in MEASURES if name != "std")


@dataclass(frozen=True)
class TrajectoryRow:
    """One matrix of a run at one step. A measure is None where ``problem`` says why there is none."""

    run: str
    step: int
    """Completed optimizer steps."""
    tokens: int
    """Supervised tokens up to there."""
    source: str
    """initial: measured before the first step; checkpoint; recorded: by the run itself."""
    component: str
    layer: int | None
    stable_rank: float | None
    row_cosine: float | None
    entropy_rank: float | None
    er99: float | None
    std: float | None
    problem: str | None


@dataclass(frozen=True)
class Reference:
    """The same measures of Gaussian matrices of the shapes that a component of a run has: means over its matrices."""

    run: str
    component: str
    stable_rank: float | None
    row_cosine: float | None
    entropy_rank: float | None
    er99: float | None


@dataclass(frozen=True)
class Point:
    """A component at one step: mean and range over its layers, each the mean over its matrices (experts)."""

    step: int
    tokens: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class TurnRow:
    """Where one measure of a component began, was least and most, and ended: means over its matrices."""

    run: str
    component: str
    measure: str
    matrices: int
    points: int
    first: float
    first_step: int
    least: float
    least_step: int
    most: float
    most_step: int
    last: float
    last_step: int
    gaussian: float | None


def measures(stats: MatrixStats) -> dict[str, Any]:
    """What is followed of a matrix, and its problem: JSON values."""
    return {name: getattr(stats, name) for name in (*MEASURES, "problem")}


def initial(run: str, weights: Iterable[WeightRow]) -> list[TrajectoryRow]:
    """What was measured of a run's weights before its first step."""
    return [TrajectoryRow(run, 0, 0, "initial", row.role, row.layer, **measures(row.stats)) for row in weights]


def recorded(run: str, metrics_row: dict[str, Any]) -> list[TrajectoryRow]:
    """What a run wrote of its weights at one step (a row of kind "weights" of metrics.jsonl).

    Raises KeyError, TypeError, AttributeError or ValueError where it is not as it was written.
    """
    rows = []
    for key, found in metrics_row["components"].items():
        component, _, layer = key.partition("/")
        values = {name: None if found[name] is None else float(found[name]) for name in MEASURES}
        place = int(layer) if layer else None
        rows.append(
            TrajectoryRow(
                run, metrics_row["step"], metrics_row["tokens"], "recorded", component, place, **values,
                problem=found["problem"],
            )
        )  # fmt: skip
    return rows


def averaged(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The means of the ``measures`` of several matrices (experts of one layer); None where one has no number, with all
    that is wrong."""
    means: dict[str, Any] = {}
    for name in MEASURES:
        values = [one[name] for one in found]
        means[name] = None if None in values else fmean(values)
    problems = dict.fromkeys(one["problem"] for one in found if one["problem"] is not None)
    return means | {"problem": "; ".join(problems) or None}


def reference(run: str, component: str, gaussians: Sequence[dict[str, Any]]) -> Reference:
    """The means of the ``measures`` of the Gaussian matrices that stand beside a component's."""
    means = averaged(gaussians)
    return Reference(run, component, **{name: means[name] for name in SCALE_FREE})


def references(
    run: str, facts: Iterable[ParameterFact], gaussian: Callable[[int, int], dict[str, Any]]
) -> list[Reference]:
    """A reference for each component of the matrices in ``facts``; ``gaussian`` gives the ``measures`` of a Gaussian
    matrix [m, n], and is asked once a shape."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for fact in facts:
        for part in fact.parts():
            shapes.setdefault(part.role, []).append(part.shape)
    roles = in_order(shapes)
    known = {shape: gaussian(*shape) for shape in dict.fromkeys(shape for role in roles for shape in shapes[role])}
    return [reference(run, role, [known[shape] for shape in shapes[role]]) for role in roles]


def curve(rows: Iterable[TrajectoryRow], measure: str) -> tuple[list[Point], list[int]]:
    """The points of one component of one run in the order of steps, and the steps that are left out: those at which a
    matrix has no number that has one at another step. A mean over fewer matrices would jump without any having moved.
    """
    found: dict[tuple[int, int | None], list[float | None]] = {}
    tokens: dict[int, int] = {}
    for row in rows:
        found.setdefault((row.step, row.layer), []).append(getattr(row, measure))
        tokens[row.step] = row.tokens
    by_step: dict[int, dict[int | None, float]] = {}
    for (step, layer), numbers in found.items():
        known = [value for value in numbers if value is not None]
        if len(known) == len(numbers):
            by_step.setdefault(step, {})[layer] = fmean(known)
    everything = {layer for values in by_step.values() for layer in values}
    points, left_out = [], []
    for step, values in sorted(by_step.items()):
        if values.keys() == everything:
            of_layers = values.values()
            points.append(Point(step, tokens[step], fmean(of_layers), min(of_layers), max(of_layers)))
        else:
            left_out.append(step)
    return points, left_out


def grouped(rows: Iterable[TrajectoryRow]) -> dict[tuple[str, str], list[TrajectoryRow]]:
    """Rows by (run, component): runs as they come, components in the order of the component table."""
    found: dict[tuple[str, str], list[TrajectoryRow]] = {}
    for row in rows:
        found.setdefault((row.run, row.component), []).append(row)
    runs = list(dict.fromkeys(run for run, _ in found))
    order = in_order(component for _, component in found)
    return {(run, name): found[run, name] for run in runs for name in order if (run, name) in found}


def turns(rows: Sequence[TrajectoryRow], references: Sequence[Reference]) -> list[TurnRow]:
    """For each run, component and measure its curve's first, least, most and last value; of equal ones the earliest."""
    gaussian = {(one.run, one.component): one for one in references}
    found = []
    for (run, component), own in grouped(rows).items():
        for measure in MEASURES:
            points, _ = curve(own, measure)
            if not points:
                continue
            least, most = min(points, key=lambda p: p.mean), max(points, key=lambda p: p.mean)
            matrices = len({row.layer for row in own if getattr(row, measure) is not None})
            found.append(
                TurnRow(
                    run, component, measure, matrices, len(points), points[0].mean, points[0].step,
                    least.mean, least.step, most.mean, most.step, points[-1].mean, points[-1].step,
                    getattr(gaussian.get((run, component)), measure, None),
                )
            )  # fmt: skip
    return found


def left_out(rows: Sequence[TrajectoryRow]) -> list[str]:
    """A line for each matrix without a number, with the steps, and for each component whose mean leaves steps out."""
    lines = []
    problems: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.problem is not None:
            matrix = row.component if row.layer is None else f"{row.component} of layer {row.layer}"
            problems.setdefault((matrix, row.problem), []).append(row.step)
    for (matrix, problem), steps in problems.items():
        lines.append(f"{matrix}: {problem} ({_steps(steps)})")
    for (_, component), own in grouped(rows).items():
        steps = sorted({step for measure in MEASURES for step in curve(own, measure)[1]})
        if steps:
            lines.append(f"{component}: not all of its matrices have a number, so no mean over them ({_steps(steps)})")
    return lines


def _steps(steps: Sequence[int]) -> str:
    shown = ", ".join(f"{step:,}" for step in steps[:4])
    more = f" and {len(steps) - 4} more" if len(steps) > 4 else ""
    return f"step{'s' if len(steps) > 1 else ''} {shown}{more}"


def thinned(places: Iterable[int], most: int) -> list[int]:
    """``most`` of the layers or steps at most, evenly spaced, the first and the last among them."""
    every = sorted(set(places))
    count = min(most, len(every))
    return [every[round(place * (len(every) - 1) / max(count - 1, 1))] for place in range(count)]
