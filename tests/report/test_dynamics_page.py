"""The figures and the page of trajectories, from hand-made rows."""

import numpy as np
import pytest
from matplotlib.lines import Line2D

from seedbed.measure.table import Rows
from seedbed.measure.trajectory import MEASURES, Reference, TrajectoryRow, turns
from seedbed.report.dynamics_claims import CLAIMS
from seedbed.report.dynamics_figures import layer_figure, measure_figure
from seedbed.report.dynamics_page import dynamics_page
from seedbed.report.dynamics_rows import Dynamics, RunFacts
from seedbed.report.sections import page_html

COMPONENTS = ("embed", "attn.q", "mlp.up")
LAYERS = 3
HOSTILE, ESCAPED = "<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"


def rows(run: str, start: float) -> list[TrajectoryRow]:
    found = []
    for step in (0, 10, 20):
        for component in COMPONENTS:
            for layer in [None] if component == "embed" else range(LAYERS):
                value = start / (1 + step) + (layer or 0)
                numbers = dict.fromkeys(MEASURES, value)
                found.append(
                    TrajectoryRow(run, step, 64 * step, "checkpoint", component, layer, **numbers, problem=None)
                )
    return found


def facts(run: str, passed_over: list[str]) -> RunFacts:
    return RunFacts(run, f"runs/{run}", "gamma, gamma 1", "adamw", 0.01, 0, 20, True, 2, 0, passed_over, "ab12")


@pytest.fixture(scope="module")
def result() -> Dynamics:
    made = [*rows("一号", 30.0), *rows(HOSTILE, 20.0)]
    references = [
        Reference(run, component, 9.0, 0.1, 8.0, 0.9) for run in ("一号", HOSTILE) for component in COMPONENTS
    ]
    runs = [facts("一号", []), facts(HOSTILE, ["step_00000030 passed over: commit.json is missing"])]
    return Dynamics(Rows(runs), Rows(made), Rows(references), Rows(turns(made, references)))


def xs(line: Line2D) -> list[float]:
    return np.asarray(line.get_xdata()).tolist()


def ys(line: Line2D) -> list[float]:
    return np.asarray(line.get_ydata()).tolist()


def test_lines_are_means_and_bands_ranges(result):
    figure = measure_figure(result.rows, result.references, "stable_rank")
    embed, q = figure.axes[:2]
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == list(COMPONENTS)
    assert xs(q.lines[0]) == [0, 10, 20]
    assert ys(q.lines[0]) == pytest.approx([31.0, 30 / 11 + 1, 30 / 21 + 1])
    assert ys(q.lines[1])[0] == 21.0
    assert ys(q.lines[2]) == [9.0, 9.0]  # once for both
    assert len(q.lines) == 3
    assert len(embed.collections) == 0  # one matrix: no range
    band = np.asarray(q.collections[0].get_paths()[0].vertices)[:, 1]
    assert (band.min(), band.max()) == pytest.approx((30 / 21, 32.0))
    assert q.get_yscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "一号", HOSTILE, "range over layers", "Gaussian matrix of that shape",
    ]  # fmt: skip


def test_tokens_along_the_axis_and_no_gaussian_of_a_scale(result):
    figure = measure_figure(result.rows, result.references, "std", "tokens")
    assert xs(figure.axes[1].lines[0]) == [0, 640, 1280]
    assert len(figure.axes[1].lines) == 2
    assert len(figure.legends[0].get_texts()) == 3


def test_a_layer_by_itself(result):
    figure = layer_figure(result.rows, result.references, 2)
    assert len(figure.axes) == 2 * 4
    assert ys(figure.axes[0].lines[0])[0] == 32.0
    assert [axes.get_ylabel() for axes in figure.axes[::4]] == ["attn.q", "mlp.up"]


def test_the_page_says_what_it_shows(result):
    page = dynamics_page(result, {"command": "seedbed analyze dynamics a b"})
    assert [picture.name for picture in page.pictures] == [*MEASURES, "layer_00", "layer_01", "layer_02"]
    text = page_html(page)
    assert "Each run has one seed: no number here has an error bar over seeds" in text
    assert "step_00000030 passed over: commit.json is missing" in text
    assert "<script" not in text and ESCAPED in text
    assert "<script" not in page.pictures[0].svg and ESCAPED in page.pictures[0].svg
    ranks = page.sections[1].tables[0]
    assert ranks.title == "Stable rank: means over the layers"
    assert ("attn.q", "一号", "3", "31.0", "2.43", "20", "31.0", "0", "2.43", "9.00") in ranks.rows
    assert page.sections[0].paragraphs == [CLAIMS["adamw"]]
    assert not any(view.brief for view in page.sections[1].tables)
    assert [view.folded for view in page.sections[1].tables] == [False, False, True, True, True]
    assert "seedbed analyze dynamics a b" in text


def test_the_terminal_has_a_line_a_component_and_a_cell_a_run(result):
    rank, cosine = dynamics_page(result, {}).sections[0].tables
    assert (rank.brief, cosine.brief) == (True, True)
    assert rank.title == "Stable rank: first → least @step → last, means over the layers"
    assert rank.columns == ["component", "一号", HOSTILE, "Gaussian"]
    assert rank.rows[1] == ["attn.q", "31→2.4@20→2.4", "21→2.0@20→2.0", "9.00"]
    assert cosine.rows[1][1] == "31→31@0→2.4"


def test_eight_runs_fit_the_terminal_in_two_tables():
    runs = [f"run {place}" for place in range(8)]
    made = [row for run in runs for row in rows(run, 30.0)]
    told = Dynamics(Rows(facts(run, []) for run in runs), Rows(made), Rows(), Rows(turns(made, [])))
    tables = dynamics_page(told, {}).sections[0].tables
    assert [view.columns[1:-1] for view in tables] == [runs[:4], runs[4:]]
    assert all("Stable rank" in view.title and view.rows[0][-1] == "–" for view in tables)


def test_of_many_layers_some_are_shown_and_the_page_says_so(result):
    many = Rows(
        TrajectoryRow("一号", step, step, "checkpoint", "attn.q", layer, **dict.fromkeys(MEASURES, 1.0), problem=None)
        for step in (0, 1)
        for layer in range(20)
    )
    page = dynamics_page(Dynamics(Rows(result.runs[:1]), many, Rows(), Rows(turns(many, []))), {})
    assert len(page.pictures) == len(MEASURES) + 8
    assert page.pictures[-1].name == "layer_19"
    assert "Shown are 8 of 20 layers; the table rows.csv has all." in page.sections[2].paragraphs[0]
