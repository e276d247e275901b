"""Figures and page of weights: what is drawn are the rows."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from models import made

from seedbed.laws.cohort import read_cohort
from seedbed.measure.table import Rows
from seedbed.report.render import number
from seedbed.report.sections import page_html
from seedbed.report.spectra_figures import (
    CURVES,
    POINTS,
    chosen,
    cosines_figure,
    densities_figure,
    mean_spectra_figure,
    spectra_figure,
)
from seedbed.report.style import ARMS, GREY, figure_svg
from seedbed.report.weights_figures import DEPTH_MEASURES, components_figure, depth_figure, trends_figure
from seedbed.report.weights_page import component_views, weights_page, zero_rows_told
from seedbed.report.weights_rows import Spectrum


@pytest.fixture(scope="module")
def weights():
    return made("a")


def panel(figure, title: str):
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == title)


def test_a_component_is_at_its_mean_beside_a_gaussian_matrix(weights):
    first, axes = components_figure([weights]).axes[:2]
    roles = [label.get_text() for label in first.get_yticklabels()]
    row = next(row for row in weights.components if row.role == "attn.o")
    place = roles.index("attn.o")
    lines = [line for line in axes.get_lines() if len(line.get_ydata()) and np.mean(line.get_ydata()) == place]
    dots, mean, bar = lines
    assert sorted(dots.get_xdata()) == sorted(one.stable_rank for one in weights.matrices if one.role == "attn.o")
    assert list(mean.get_xdata()) == [row.stable_rank]
    assert list(bar.get_xdata()) == [row.gaussian_stable_rank] * 2


def test_depth_has_a_line_a_model_a_dashed_gaussian_and_the_cohort(weights):
    cohort = read_cohort(None)
    figure = depth_figure([weights, made("b", 1, layers=5)], cohort)
    columns = len(DEPTH_MEASURES)
    roles = [axes.get_ylabel() for axes in figure.axes[::columns]]
    line = figure.axes[columns * roles.index("attn.o") :][:columns]
    rows = [row for row in weights.profiles if row.role == "attn.o"]
    solid = [one for one in line[1].get_lines() if one.get_linestyle() == "-"]
    assert list(solid[0].get_xdata()) == [0, 0.5, 1]
    assert list(solid[0].get_ydata()) == [row.stable_rank for row in rows]
    assert list(solid[1].get_xdata()) == [0, 0.25, 0.5, 0.75, 1]
    assert [one.get_color() for one in solid] == [ARMS[0][0], ARMS[1][0]]
    dashed = [one for one in line[1].get_lines() if one.get_linestyle() == "--"]
    assert list(dashed[0].get_ydata()) == [row.gaussian_stable_rank for row in rows]
    assert [len(axes.collections) for axes in line] == [1, 0, 1, 0]  # bands where the cohort has the measure
    band = line[0].collections[0].get_paths()[0].vertices[:, 1]
    curve = cohort.components["attn.o"].rms
    assert band.max() == pytest.approx(max(m + s for m, s in zip(curve.mean, curve.std, strict=True)))
    assert band.min() == pytest.approx(min(m - s for m, s in zip(curve.mean, curve.std, strict=True)))
    assert [len(axes.collections) for axes in figure.axes[:columns]] == [0] * 4  # attn.q: a cohort has the three as one


def test_trends_are_z_scores(weights):
    axes = panel(trends_figure(weights), "stable rank")
    line = next(line for line in axes.get_lines() if line.get_label() == "attn.o")
    values = np.array([row.stable_rank for row in weights.profiles if row.role == "attn.o"])
    assert line.get_ydata() == pytest.approx((values - values.mean()) / values.std())


def test_spectra_are_shares_of_the_largest_by_layer(weights):
    figure = spectra_figure(weights)
    first, second, third, gaussian = panel(figure, "attn.o").get_lines()
    spectrum = next(one for one in weights.spectra if (one.role, one.layer) == ("attn.o", 1))
    assert second.get_xdata() == pytest.approx(np.arange(1, 17) / 16)
    assert second.get_ydata() == pytest.approx(np.array(spectrum.values) / spectrum.values[0])
    assert len({first.get_color(), second.get_color(), third.get_color()}) == 3
    assert gaussian.get_linestyle() == "--"
    assert gaussian.get_ydata()[0] == 1
    assert panel(figure, "attn.o").get_yscale() == "log"


def test_long_spectra_and_deep_models_stay_small():
    many = [Spectrum(f"{layer}", "attn.o", layer, 0.0, [1.0] * 9) for layer in range(100) for _ in range(2)]
    layers = [one.layer for one in chosen(many)]
    assert (len(layers), layers[0], layers[-1]) == (CURVES, 0, 99)
    model = made("a")
    long = replace(next(one for one in model.spectra if one.role == "embed"), values=[1 / i for i in range(1, 5001)])
    figure = spectra_figure(replace(model, spectra=Rows([long])))
    xs, ys = figure.axes[0].get_lines()[0].get_data()
    assert len(xs) <= POINTS
    assert (xs[0], xs[-1], ys[0], ys[-1]) == (1 / 5000, 1, 1, 1 / 5000)


def test_several_models_are_the_medians_of_their_spectra(weights):
    axes = panel(mean_spectra_figure([weights, made("b", 1)]), "attn.v")
    labels = [line.get_label() for line in axes.get_lines() if line.get_linestyle() == "-"]
    assert labels == ["a", "b"]
    ends = [one.values[-1] / one.values[0] for one in weights.spectra if one.role == "attn.v"]
    assert axes.get_lines()[0].get_ydata()[-1] == pytest.approx(np.median(ends))


def test_densities_stand_beside_one_standard_normal(weights):
    axes = panel(densities_figure([weights, made("b", 1)]), "mlp.up")
    entries, other, normal = axes.get_lines()
    row = next(row for row in weights.densities if row.role == "mlp.up")
    assert list(entries.get_ydata()) == row.density
    assert [line.get_color() for line in (entries, other, normal)] == [ARMS[0][0], ARMS[1][0], GREY]
    at = np.array(normal.get_xdata())
    assert normal.get_ydata() == pytest.approx(np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi))
    assert (axes.get_yscale(), axes.get_xlim()) == ("log", (-5, 5))


def test_cosines_share_one_scale(weights):
    lines = [("", [one for one in weights.cosines if one.role == role]) for role in ("attn.q", "mlp.up")]
    figure = cosines_figure(lines)
    images = [image for axes in figure.axes for image in axes.get_images()]
    assert [image.get_clim() for image in images] == [(-1, 1)] * 6
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == [f"attn.q, layer {i}" for i in range(3)]


def test_eight_arms_are_all_different():
    assert len({color for color, _ in ARMS}) == len({marker for _, marker in ARMS}) == len(ARMS) == 8


def test_coordinates_are_short_and_words_whole(weights):
    one = replace(weights, spectra=Rows([one for one in weights.spectra if one.role == "attn.o"]))
    svg = figure_svg(spectra_figure(one), "0.123456")
    assert 'aria-label="0.123456"' in svg
    digits = [len(part) for path in re.findall(r' d="([^"]+)"', svg) for part in re.findall(r"\.(\d+)", path)]
    assert max(digits) == 2


def test_tables_of_components_fit_on_a_page(weights):
    views = component_views(weights.components)
    titles = ["scale, rank, directions of rows", "energy", "condition"]
    assert [view.title for view in views] == [f"Components: {title}" for title in titles]
    for view in views:
        assert len(view.columns) <= 12
        assert {len(row) for row in view.rows} == {len(view.columns)}
    row = next(row for row in weights.components if row.role == "attn.o")
    cells = next(cells for cells in views[2].rows if cells[0] == "attn.o")
    assert cells[2] == number(row.condition_median)
    assert cells[-1] == number(row.condition)


def test_the_page_has_every_number_and_every_problem(weights, undrawn):
    bad = replace(weights.matrices[3], problem="2 of 9 entries are NaN or infinite <b>", std=None, stable_rank=None)
    rows = Rows([*weights.matrices[:3], bad, *weights.matrices[4:]])
    page = weights_page(
        replace(weights, name="a<b", matrices=rows), {"run: model.safetensors": "SHA-256 ab12", "torch": "2"}
    )
    html = page_html(page)
    assert [picture.name for picture in page.pictures] == [
        "components", "depth", "trends", "spectra", "densities", "cosines",
    ]  # fmt: skip
    assert "a&lt;b" in html and "a<b" not in html
    assert "2 of 9 entries are NaN or infinite &lt;b&gt;" in html
    assert "ab12" in html
    assert not re.search(r">(nan|None)<", html)
    for row in rows:
        assert f"<td>{row.name}</td>" in html
    assert page.tiles["matrices measured"] == f"{len(rows) - 4} of {len(rows) - 3} and 3 joint"
    assert page.tiles["without all numbers"] == "1"


def test_a_joint_matrix_counts_apart_from_those_it_is_made_of(weights):
    joint = [row for row in weights.matrices if row.joint]
    assert [(row.role, row.layer) for row in joint] == [("attn.qkv", layer) for layer in range(3)]
    alone = Rows(row for row in weights.matrices if not row.joint)
    assert weights.measured == f"{len(alone)} of {len(alone)} and 3 joint"
    assert replace(weights, matrices=alone).measured == f"{len(alone)} of {len(alone)}"
    broken = Rows([*alone, *joint[:2], replace(joint[2], problem="NaN", stable_rank=None)])
    weights = replace(weights, matrices=broken)
    assert weights.measured == f"{len(alone)} of {len(alone)} and 2 of 3 joint"
    assert weights_page(weights, {}).tiles["without all numbers"] == "0"


def test_people_read_one_name_and_find_the_column_in_its_definition(weights):
    page = weights_page(weights, {})
    columns = {column for section in page.sections for view in section.tables for column in view.columns}
    for name, field in (("effective rank", "entropy_rank"), ("ER@99 % (share of r)", "er99")):
        assert name in columns
        assert name in {axes.get_title(loc="left") for axes in components_figure([weights]).axes}
        assert field in page.definitions[name.replace("99", "q")]
        assert hasattr(weights.matrices[0], field)


def test_matrices_with_rows_of_zeros_are_named(weights, undrawn):
    weights = replace(weights, profiles=Rows(), spectra=Rows(), densities=Rows(), cosines=Rows())  # fewer figures
    assert "Rows of zeros, left out" not in page_html(weights_page(weights, {}))
    first, second, *others = weights.matrices
    changed = Rows([replace(first, zero_rows=1234, rows=5000), replace(second, zero_rows=3, problem="broken"), *others])
    padded = replace(weights, matrices=changed)
    page = weights_page(padded, {})
    html = page_html(page)
    assert f"Rows of zeros, left out of |cos|: {first.name} (1,234 of 5,000)." in html
    entries, _ = page.sections[-1].tables
    assert (entries.columns[-1], entries.rows[0][-1]) == ("zero rows", "1,234")
    assert changed.to_csv().splitlines()[0].endswith(",zero_rows")
    assert zero_rows_told([padded, replace(weights, name="b")]) == [
        f"Rows of zeros of a, left out of |cos|: {first.name} (1,234 of 5,000)."
    ]
