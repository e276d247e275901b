"""Figures of what is inside matrices: singular values, how entries are distributed, which rows are alike."""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import norm

from seedbed.facts.fact import in_order
from seedbed.measure.density import REACH
from seedbed.measure.gaussian import gaussian_spectra
from seedbed.report.style import ARMS, GREY, INK, WIDTH, labelled, log_scale, panels, style
from seedbed.report.weights_rows import CosineMap, DensityRow, Spectrum, Weights

CURVES = 12  # of a component, at most, over evenly spaced layers
POINTS = 48  # of a curve, at most
LOWEST = 1e-6  # of an axis of shares of sigma_1: what lies below is zero to the eye
SHADES = 25  # of a cosine on either side of zero: finer ones are not seen, and are most of an image's bytes
FLOOR = 1e-3  # of an axis of densities, of the lowest of their peaks
DEPTHS = LinearSegmentedColormap.from_list("depths", mpl.colormaps["viridis"](np.linspace(0, 0.88, 64)))


def spectra_figure(model: Weights) -> Figure:
    """sigma_i / sigma_1 over i / r, a panel a component, curves coloured by layer; dashed what a Gaussian matrix
    of that shape has, the mean of drawn ones."""
    roles = in_order(one.role for one in model.spectra)
    last = max((one.layer or 0 for one in model.spectra), default=0)
    shades, lowest = ScalarMappable(Normalize(0, max(last, 1)), DEPTHS), 1.0
    with style():
        figure, axes = _grid(len(roles), sharey=True)
        for panel, role in zip(axes, roles, strict=False):
            curves = chosen([one for one in model.spectra if one.role == role])
            lowest = min(lowest, *(one.values[-1] / one.values[0] for one in curves))
            for one in curves:
                color = INK if one.layer is None else DEPTHS(one.layer / max(last, 1))
                panel.plot(*_curve(one.values), color=color, linewidth=1)
            _gaussian_curve(panel, model, curves[0].name)
            panel.set_title(role)
        _spectral_axes(figure, axes[: len(roles)], lowest)
        if last:
            bar = figure.colorbar(shades, ax=axes, label="layer", fraction=0.025, pad=0.01)
            bar.locator = MaxNLocator(integer=True, nbins=6)
            bar.update_ticks()
        figure.legend(handles=[_dashed(axes[0])], loc="outside upper right")
        return figure


def chosen(spectra: Sequence[Spectrum]) -> list[Spectrum]:
    """The first spectrum (of experts) of each layer, of at most CURVES evenly spaced layers."""
    first: dict[int | None, Spectrum] = {}
    for one in spectra:
        first.setdefault(one.layer, one)
    found = list(first.values())
    places = np.linspace(0, len(found) - 1, min(CURVES, len(found))).round().astype(int)
    return [found[place] for place in places]


def mean_spectra_figure(models: Sequence[Weights]) -> Figure:
    """sigma_i / sigma_1 over i / r of several models: the median over each component's matrices, and where all lie."""
    roles = in_order(one.role for model in models for one in model.spectra)
    at, lowest = np.linspace(0, 1, POINTS), 1.0
    with style():
        figure, axes = _grid(len(roles), sharey=True)
        for panel, role in zip(axes, roles, strict=False):
            for index, model in enumerate(models):
                own = [_curve(one.values) for one in model.spectra if one.role == role]
                if not own:
                    continue
                curves = np.exp([np.interp(at, x, np.log(np.maximum(y, 1e-12))) for x, y in own])
                color, lowest = ARMS[index][0], min(lowest, float(np.median(curves[:, -1])))
                panel.plot(at, np.median(curves, axis=0), color=color, linewidth=1.5, label=model.name, zorder=3)
                if len(own) > 1:
                    panel.fill_between(at, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.13, linewidth=0)
                _gaussian_curve(panel, model, next(one.name for one in model.spectra if one.role == role))
            panel.set_title(role)
        _spectral_axes(figure, axes[: len(roles)], lowest)
        figure.legend(handles=[*labelled(axes), _dashed(axes[0])], loc="outside upper right", ncols=4)
        return figure


def densities_figure(models: Sequence[Weights]) -> Figure:
    """The density of each component's standardized entries, logarithmic, beside the standard normal one."""
    roles = in_order(row.role for model in models for row in model.densities)
    with style():
        figure, axes = _grid(len(roles))
        at = np.linspace(-REACH, REACH, POINTS)
        for panel, role in zip(axes, roles, strict=False):
            rows = [(i, row) for i, model in enumerate(models) for row in model.densities if row.role == role]
            for index, row in rows:
                density = np.array(row.density)
                curve = {"color": ARMS[index][0], "label": models[index].name, "zorder": 3}
                panel.plot(row.at, np.where(density > 0, density, np.nan), **curve)
            panel.plot(at, norm.pdf(at), "--", color=GREY, linewidth=0.9, zorder=4)
            _density_axes(panel, [row for _, row in rows])
            panel.set_title(role)
        figure.supxlabel("(entry − mean) / std, of its matrix", fontsize=10)
        figure.supylabel("density", fontsize=10)
        named = labelled(axes) if len(models) > 1 else [axes[0].plot([], [], color=ARMS[0][0], label="entries")[0]]
        normal = axes[0].plot([], [], "--", color=GREY, linewidth=0.9, label="standard normal")[0]
        figure.legend(handles=[*named, normal], loc="outside upper right", ncols=4)
        return figure


def _density_axes(axes: Axes, rows: Sequence[DensityRow]) -> None:
    peaks = [max(row.density) for row in rows]
    axes.set_ylim(FLOOR * min(peaks), 2 * max(peaks))
    log_scale(axes, "y", 4)
    axes.set(xlim=(-REACH, REACH), xticks=range(1 - REACH, REACH, 2))


def cosines_figure(lines: Sequence[tuple[str, Sequence[CosineMap]]]) -> Figure:
    """Cosines between the rows of matrices, alike ones side by side: a line of panels for each title, of its layers."""
    columns = max(len(maps) for _, maps in lines)
    with style():
        figure, axes = panels(len(lines), columns, WIDTH, 0.5 + 2.75 * len(lines))
        grid = np.array(axes, dtype=object).reshape(len(lines), columns)
        image = None
        for line, (title, maps) in zip(grid, lines, strict=True):
            for panel, one in zip(line, maps, strict=False):
                shown = np.round(np.array(one.cosines) * SHADES) / SHADES
                image = panel.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
                panel.set_title(f"{one.role}, layer {one.layer}")
                panel.set(xticks=[], yticks=[])
                panel.grid(visible=False)
                part = f"{len(shown)} of {one.rows} rows" if len(shown) < one.rows else f"{len(shown)} rows"
                panel.set_xlabel(part, fontsize=9)
            line[0].set_ylabel(title)
            for panel in line[len(maps) :]:
                panel.set_visible(False)
        assert image is not None
        figure.colorbar(image, ax=axes, label="cosine", fraction=0.03, pad=0.02)
        return figure


def _grid(count: int, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A panel for each of ``count`` components, four a line; the rest is hidden."""
    columns = min(4, count)
    lines = math.ceil(count / columns)
    figure, axes = panels(lines, columns, WIDTH, 0.9 + 1.95 * lines, sharey=sharey)
    for panel in axes[count:]:
        panel.set_visible(False)
    return figure, axes


def _curve(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """(i / r, sigma_i / sigma_1) at POINTS places at most, closer together at the start where curves bend."""
    r = len(values)
    index = np.concatenate([np.geomspace(1, r, POINTS // 3), np.linspace(1, r, 2 * POINTS // 3)])
    index = np.unique(index.round().astype(int))
    return index / r, np.array(values)[index - 1] / values[0]


def _gaussian_curve(axes: Axes, model: Weights, name: str) -> None:
    row = next(row for row in model.matrices if row.name == name)
    drawn = gaussian_spectra(max(row.rows, row.columns), min(row.rows, row.columns))[0].mean(axis=0)  # [r]
    axes.plot(*_curve(drawn), "--", color=GREY, linewidth=1.1, zorder=4)


def _dashed(axes: Axes):
    return axes.plot([], [], "--", color=GREY, linewidth=1.1, label="Gaussian matrix of that shape")[0]


def _spectral_axes(figure: Figure, axes: Sequence[Axes], lowest: float) -> None:
    for panel in axes:
        panel.set_xlim(0, 1)
    axes[0].set_ylim(max(LOWEST, 0.7 * lowest), 1.3)
    log_scale(axes[0], "y")  # of all, which share it
    figure.supxlabel("i / r", fontsize=10)
    figure.supylabel("σᵢ / σ₁", fontsize=10)
