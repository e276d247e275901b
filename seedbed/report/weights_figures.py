"""Figures of weights: components side by side, and what depth does to them; of one model or of several."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from seedbed.facts.fact import in_order
from seedbed.laws.cohort import Cohort, Curve
from seedbed.measure.density import z_scores
from seedbed.measure.rows import ComponentRow, ProfileRow
from seedbed.report.measures import NAMES
from seedbed.report.style import ARMS, FAINT, GREY, INK, WIDTH, labelled, log_scale, panels, short, style
from seedbed.report.weights_rows import Weights

COMPONENT_MEASURES = {
    **{name: NAMES[name] for name in ("std", "stable_rank", "entropy_rank", "er99")},
    "condition": "condition number κ",
    "row_cosine": NAMES["row_cosine"],
}
DEPTH_MEASURES = {
    "rms": "RMS",
    "stable_rank": "stable rank",
    "rank_share": "effective rank / r",
    "row_cosine": "mean |cos|",
}
BESIDE_GAUSSIAN = ("stable_rank", "rank_share", "row_cosine")
BANDS: dict[str, Callable[..., Curve]] = {"rms": lambda c: c.rms, "rank_share": lambda c: c.rank_share}
"""Measures that a cohort has, and that compare between widths."""


def components_figure(models: Sequence[Weights]) -> Figure:
    """Six measures of each component: the mean of each model (of κ the median), small dots for the single matrices,
    and a bar at what Gaussian matrices of the same shapes have."""
    roles = in_order(row.role for model in models for row in model.components)
    with style():
        height = 1.3 + 2 * len(roles) * max(0.24, 0.11 * len(models) + 0.06)
        figure, axes = panels(2, 3, WIDTH, height, sharey=True)
        for panel, (field, label) in zip(axes, COMPONENT_MEASURES.items(), strict=True):
            for index, model in enumerate(models):
                _components(panel, model, index, len(models), roles, field)
            panel.set_title(label)
            if field != "er99":
                log_scale(panel, "x", labels=6)
            panel.grid(axis="y", visible=False)
            for edge in range(1, len(roles) if len(models) > 1 else 0):
                panel.axhline(edge - 0.5, color=FAINT, linewidth=0.7)
        axes[0].set_yticks(range(len(roles)), roles)
        axes[0].set_ylim(len(roles) - 0.5, -0.5)
        marks = [_mark(axes[0], index, model.name, "") for index, model in enumerate(models)]
        marks.append(axes[0].plot([], [], "o", color=GREY, markersize=3, alpha=0.5, label="each matrix")[0])
        bar = {"markersize": 10, "markeredgewidth": 1.4, "label": "Gaussian matrix of that shape"}
        marks.append(axes[0].plot([], [], "|", color=INK, **bar)[0])
        figure.legend(handles=marks, loc="outside upper right", ncols=min(len(marks), 5))
        return figure


def _components(axes: Axes, model: Weights, index: int, count: int, roles: list[str], field: str) -> None:
    """One model's marks in one panel, each in the strip that is its own."""
    strip = 0.8 / count
    by_role: dict[str, ComponentRow] = {row.role: row for row in model.components}
    color, marker = ARMS[index]
    average = "condition_median" if field == "condition" else field
    for place, role in enumerate(roles):
        if role not in by_role:
            continue
        y = place + strip * (index - (count - 1) / 2)
        single = [getattr(row, field) for row in model.matrices if row.role == role]
        single = [value for value in single if value and np.isfinite(value)]
        if len(single) > 1:
            axes.plot(single, [y] * len(single), "o", color=color, markersize=2.2, alpha=0.35, markeredgewidth=0)
        middle = getattr(by_role[role], average)
        if middle and np.isfinite(middle):
            axes.plot(middle, y, marker, color=color, markersize=5.5 if count < 4 else 4.2, zorder=3)
        gaussian = getattr(by_role[role], f"gaussian_{average}", None)
        if gaussian:
            axes.plot([gaussian] * 2, [y - strip / 2, y + strip / 2], color=INK, linewidth=1.3, zorder=1)


def _mark(axes: Axes, index: int, label: str, line: str = "-"):
    """An entry of a legend."""
    color, marker = ARMS[index]
    return axes.plot([], [], line, color=color, marker=marker, markersize=4.5, label=label)[0]


def depth_figure(models: Sequence[Weights], cohort: Cohort | None = None) -> Figure:
    """Four measures of each component over relative depth, a line a model, before what Gaussian matrices have and the
    mean ± standard deviation of a cohort."""
    roles = in_order(row.role for model in models for row in model.profiles)
    with style():
        figure, axes = panels(len(roles), len(DEPTH_MEASURES), WIDTH, 0.8 + 1.15 * len(roles), sharex=True)
        grid = np.array(axes, dtype=object).reshape(len(roles), len(DEPTH_MEASURES))
        for line, role in zip(grid, roles, strict=True):
            for panel, field in zip(line, DEPTH_MEASURES, strict=True):
                _band(panel, cohort, role, field)
                for index, model in enumerate(models):
                    _profile(panel, model, index, role, field)
                if field in BESIDE_GAUSSIAN:
                    _beside(panel, models, role, field)
                low, high = panel.get_ylim()
                panel.set_ylim(0 if low < 0.35 * high else low, high + 0.06 * (high - low))
                panel.locator_params(axis="y", nbins=3)
                panel.yaxis.set_major_formatter(lambda x, _: short(x))
            line[0].set_ylabel(role, fontweight="bold")
        for panel, label in zip(grid[0], DEPTH_MEASURES.values(), strict=True):
            panel.set_title(label)
        figure.supxlabel("relative depth, layer / (layers − 1)", fontsize=10)
        marks: list[Artist] = [_mark(axes[0], index, model.name) for index, model in enumerate(models)]
        marks.append(axes[0].plot([], [], "--", color=GREY, linewidth=1, label="Gaussian matrix of that shape")[0])
        if cohort is not None:
            marks.append(Patch(color=GREY, alpha=0.25, label="cohort, mean ± std"))
        figure.legend(handles=marks, loc="outside upper right", ncols=min(len(marks), 5))
        return figure


def _profile(axes: Axes, model: Weights, index: int, role: str, field: str) -> None:
    rows = _measured(model, role, field)
    color, marker = ARMS[index]
    look = {"color": color, "marker": marker, "markersize": 3.5, "markevery": _sparse(rows), "linewidth": 1.3}
    axes.plot([row.depth for row in rows], [getattr(row, field) for row in rows], zorder=3, **look)


def _beside(axes: Axes, models: Sequence[Weights], role: str, field: str) -> None:
    """What Gaussian matrices have: one grey line where that is the same for all models, else one of each colour."""
    curves: dict[tuple[tuple[float, float | None], ...], str] = {}
    for index, model in enumerate(models):
        curve = tuple((row.depth, getattr(row, f"gaussian_{field}")) for row in _measured(model, role, field))
        if curve:
            curves.setdefault(curve, ARMS[index][0])
    for curve, color in curves.items():
        look = {"color": color if len(curves) > 1 else GREY, "linewidth": 0.9, "zorder": 2}
        axes.plot(*zip(*curve, strict=True), linestyle="--", **look)


def _measured(model: Weights, role: str, field: str) -> list[ProfileRow]:
    return [row for row in model.profiles if row.role == role and getattr(row, field) is not None]


def _sparse(points: Sequence[object]) -> int:
    """Every how many points of a curve have a mark: of long ones about twelve."""
    return max(1, len(points) // 12)


def _band(axes: Axes, cohort: Cohort | None, role: str, field: str) -> None:
    if cohort is None or role not in cohort.components or field not in BANDS:
        return
    curve = BANDS[field](cohort.components[role])
    mean = np.array(curve.mean)
    axes.plot(cohort.depth, mean, color=GREY, linewidth=0.8, alpha=0.7, zorder=1)
    if curve.std is not None:
        std = np.array(curve.std)
        axes.fill_between(cohort.depth, mean - std, mean + std, color=GREY, alpha=0.25, linewidth=0, zorder=0)


def trends_figure(model: Weights) -> Figure:
    """The same measures z-scored over depth, all components in one panel: what rises and what falls, whatever its
    scale."""
    roles = in_order(row.role for row in model.profiles)
    with style():
        figure, axes = panels(2, 2, WIDTH, 5.6, sharex=True)
        for panel, (field, label) in zip(axes, DEPTH_MEASURES.items(), strict=True):
            for index, role in enumerate(roles):
                rows = _measured(model, role, field)
                scores = z_scores([getattr(row, field) for row in rows])
                if scores is not None:
                    color, marker = ARMS[index % len(ARMS)]
                    look = {"color": color, "marker": marker, "markersize": 3.2, "markevery": _sparse(rows)}
                    line = "-" if index < len(ARMS) else "--"
                    panel.plot([row.depth for row in rows], scores, line, linewidth=1.2, label=role, **look)
            panel.axhline(0, color=GREY, linewidth=0.8, zorder=0)
            panel.set_title(label)
        figure.supxlabel("relative depth, layer / (layers − 1)", fontsize=10)
        figure.supylabel("z-score over layers", fontsize=10)
        figure.legend(handles=labelled(axes), loc="outside upper right", ncols=5)
        return figure
