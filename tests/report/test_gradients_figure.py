"""Gradients by component over the steps of a run, and what its guard passed over."""

import math
import re
from dataclasses import replace

import pytest
from matplotlib.collections import QuadMesh

from seedbed.measure.gradients import DECADES
from seedbed.report.gradients_figure import MAX_COLUMNS, gradients_figure
from seedbed.report.page import run_page


def component(entries: int, zeros: int, norm: float, **counts: int) -> dict:
    decades = [0] * (len(DECADES) + 1)
    for name, count in counts.items():
        decades[1 + DECADES.index(-int(name.removeprefix("e")))] = count
    return {"entries": entries, "zeros": zeros / entries, "norm": norm, "max": 1.0, "decades": decades}


def row(step: int, small: int = 10) -> dict:
    parts = {
        "attn.q/0": component(100, 0, 3.0, e3=100),
        "attn.q/1": component(100, 0, 4.0, e3=100 - small, e5=small),
        "embed": component(1000, 900, 1.0, e2=100),
    }
    return {"kind": "gradients", "step": step, "components": parts}


def shown(figure) -> dict[str, tuple[list, list, list]]:
    """Title -> (shares by decade and step, bounds of the decades, line) of each panel that is seen."""
    found = {}
    for panel in figure.axes:
        meshes = [one for one in panel.collections if isinstance(one, QuadMesh)]
        if panel.get_visible() and panel.get_title(loc="left"):
            bounds = meshes[0].get_coordinates()[:, 0, 1].tolist()
            line = panel.lines[0].get_ydata()
            found[panel.get_title(loc="left")] = (meshes[0].get_array().tolist(), bounds, list(line))
    return found


def test_layers_are_put_together_and_zeros_lie_in_no_decade():
    panels = shown(gradients_figure([row(10), row(20, small=20), row(30)]))
    assert list(panels) == ["embed", "attn.q"]
    shares, bounds, line = panels["attn.q"]
    assert bounds == [-5, -4, -3, -2, -1]  # 1e-5 to 1e-4 is the lowest that holds anything, 1e-2 to 1e-1 the highest
    assert shares == [[0.05, 0.1, 0.05], [0, 0, 0], [0.95, 0.9, 0.95], [0, 0, 0]]
    assert line == pytest.approx([math.log10(5 / math.sqrt(200))] * 3)
    assert panels["embed"][0][3] == [1, 1, 1]


def test_one_look_many_looks_and_gradients_that_are_all_zero():
    assert len(shown(gradients_figure([row(1)]))["embed"][2]) == 1
    many = shown(gradients_figure([row(step) for step in range(1, 1000)]))["embed"][2]
    assert MAX_COLUMNS / 2 < len(many) <= MAX_COLUMNS
    dead = {"kind": "gradients", "step": 1, "components": {"embed": component(10, 10, 0.0)}}
    (_, _, line) = shown(gradients_figure([dead]))["embed"]
    assert math.isnan(line[0])


def test_the_page_shows_gradients_and_tells_what_was_passed_over(run_report, undrawn):
    base = {"kind": "guard", "why": "loss <nan>", "loss": None, "grad_norm": None}
    skip = base | {"step": 7, "bad_step": 7, "action": "skip", "samples": [24, 28]}
    back = base | {"step": 31, "bad_step": 45, "action": "rollback", "samples": [120, 180]}
    page = run_page(replace(run_report, metrics=[*run_report.metrics, row(10), row(20), skip, back]))
    assert "sizes of the gradient" in page.lower()
    text = re.sub(r"\s+", " ", page)
    assert "step 7: loss &lt;nan&gt;; skipped, not trained on samples 24 to 27" in text
    assert "step 45: loss &lt;nan&gt;; back to step 30, not trained on samples 120 to 179" in text
    plain = run_page(run_report)
    assert "The guard" not in plain
    assert "before clipping" not in plain
