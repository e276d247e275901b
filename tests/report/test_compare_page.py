"""The page of several models."""

from dataclasses import replace

import numpy as np
from models import made

from seedbed.laws.cohort import read_cohort
from seedbed.measure.table import Rows
from seedbed.report.compare_page import compare_page
from seedbed.report.compare_rows import Comparison
from seedbed.report.render import number
from seedbed.report.style import ARMS, GREY
from seedbed.report.weights_figures import depth_figure


def test_a_column_a_checkpoint_and_the_ratio_to_gaussian_matrices():
    a, b = made("a", layers=2), made("b", 1, layers=2, width=32)
    page = compare_page(Comparison([a, b]), read_cohort(None), {})
    assert [picture.name for picture in page.pictures] == [
        "components", "depth", "spectra", "densities", "cosines-attn-q", "cosines-mlp-up",
    ]  # fmt: skip
    views = {
        view.title.removesuffix(" (ratio to Gaussian)"): view for section in page.sections for view in section.tables
    }
    ranks = views["Stable rank"]
    assert list(ranks.columns) == ["component", "a", "b"]
    row = next(row for row in a.components if row.role == "attn.o")
    share = number(row.stable_rank / row.gaussian_stable_rank, 2)
    assert next(line for line in ranks.rows if line[0] == "attn.o")[1] == f"{number(row.stable_rank)} ({share})"
    assert {"ER@90 % (share of r)", "κ, median", "κ, mean", "Std of entries"} <= set(views)
    assert {title for title, view in views.items() if view.folded} == {
        "ER@90 % (share of r)", "ER@95 % (share of r)", "κ, mean",
    }  # fmt: skip


def test_the_terminal_has_about_forty_lines():
    a, b = made("a", layers=2), made("b", 1, layers=2)
    page = compare_page(Comparison([a, b]), read_cohort(None), {})
    brief = [view for section in page.sections for view in section.tables if view.brief]
    assert [view.title.removesuffix(" (ratio to Gaussian)") for view in brief] == [
        "What is compared", "Stable rank", "Effective rank", "Mean |cos| of rows",
    ]  # fmt: skip
    assert sum(2 + len(view.rows) for view in brief) <= 45
    assert [row[-1] for row in brief[0].rows] == [a.measured, b.measured]
    assert "gpt2-6x96 (6 layers, width 96)" in page.definitions["cohort"]


def test_what_only_one_has_is_shown_and_the_rest_is_named():
    a = made("a", layers=2)
    kept = replace(a, name="a, initialized", spectra=Rows(), densities=Rows(), cosines=Rows(), unmeasured=3)
    page = compare_page(Comparison([kept, a]), read_cohort(None), {})
    said = [line for section in page.sections for line in (*section.paragraphs, *section.problems)]
    assert "Not shown: a, initialized, of which measures were kept and not weights." in said
    assert "a, initialized: 3 matrices were not measured" in said
    only = compare_page(Comparison([kept, replace(kept, name="b, initialized")]), read_cohort(None), {})
    assert [picture.name for picture in only.pictures] == ["components", "depth"]


def test_gaussian_lines_are_grey_where_all_models_share_them():
    a, b, wide = made("a", layers=2), made("b", 1, layers=2), made("wide", 1, layers=2, width=32)
    for models, colours in (([a, b], {GREY}), ([a, wide], {ARMS[0][0], ARMS[1][0]})):
        panel = depth_figure(models).axes[1]  # stable rank of the first component
        dashed = [
            line.get_color() for line in panel.lines if line.get_linestyle() == "--" and np.size(line.get_xdata())
        ]
        assert set(dashed) == colours
        assert len(dashed) == len(colours)
