import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from seedbed.measure.table import Rows
from seedbed.report import sections
from seedbed.report.attention_figures import entropy_figure, heads_figure, places_figure, sink_figure
from seedbed.report.attention_page import DEFINITIONS, attention_page
from seedbed.report.attention_rows import (
    Attention,
    DifferenceRow,
    HeadRow,
    LayerRow,
    ModelRow,
    PlaceRow,
    UnmeasuredRow,
)
from seedbed.report.render import inline
from seedbed.report.results import write_results
from seedbed.report.sections import page_html


def result(*names: str, interval: bool = True) -> Attention:
    """Two layers of two heads each; the sink of layer l, head h of checkpoint c is (l + 1)(h + 1)/10 + c/100."""
    low, high = (0.1, 0.4) if interval else (None, None)
    heads = Rows[HeadRow]()
    for c, name in enumerate(names):
        for layer in range(2):
            for head in range(2):
                heads.append(HeadRow(name, layer, head, (layer + 1) * (head + 1) / 10 + c / 100, 0.05, 1.5, 0.5, 1e-9))
    layers = Rows(
        LayerRow(name, layer, 2, 0.2, low, high, 0.5, 0.05, 1.5, 3.0, 0.5, 0.25 * layer)
        for name in names
        for layer in range(2)
    )
    places = Rows(
        PlaceRow(name, layer, place, 0.1 / (place + 1), 0.01)
        for name in names
        for layer in range(2)
        for place in range(16)
    )
    models = Rows(
        ModelRow(name, 3, 2, 4, 0.225, low, high, 0.25, 0.05, 1.5, 0.5, 7, 5, 1234, 99, 1227, "abc", "def")
        for name in names
    )
    differences = Rows(DifferenceRow(name, names[0], -0.0123, low, high) for name in names[1:])
    unmeasured = Rows(UnmeasuredRow(names[0], layer, "linear_attention") for layer in (2, 5))
    return Attention(256, models, layers, heads, places, differences, unmeasured, {names[0]: {"no text": 3}})


def lines(figure: Figure, axes: int) -> dict[str, list[float]]:
    return {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in figure.axes[axes].lines}


def grid(figure: Figure, axes: int) -> Any:
    return figure.axes[axes].images[0].get_array()


def test_heat_map_has_every_head_at_its_place_and_rings_around_sinks():
    figure = heads_figure(result("a", "b").heads)
    assert grid(figure, 0).tolist() == [[0.1, 0.2], [0.2, 0.4]]
    assert grid(figure, 1)[1, 1] == pytest.approx(0.41)
    limits = [figure.axes[index].images[0].get_clim() for index in (0, 1)]
    assert limits == [(0, pytest.approx(0.41))] * 2  # one scale for all
    (ring,) = figure.axes[0].lines
    assert np.asarray(ring.get_xydata()).tolist() == [[1, 1]]


def test_layers_without_attention_are_left_empty():
    heads = [row for row in result("a").heads if row.layer == 1]
    assert grid(heads_figure(heads), 0).mask.tolist() == [[True, True], [False, False]]


def test_curves_over_layers():
    rows = result("a", "b")
    shown = lines(sink_figure(rows.layers, rows.heads), 0)
    assert shown["a"] == shown["b"] == [0.2, 0.2]
    assert shown["even attention"] == [0.05, 0.05]
    assert [0.1, 0.2, 0.2, 0.4] in shown.values()  # the heads
    assert [50, 50] in lines(sink_figure(rows.layers, rows.heads), 1).values()
    assert lines(entropy_figure(rows.layers, rows.heads), 0)["even attention"] == [3.0, 3.0]
    assert [50, 50] in lines(entropy_figure(rows.layers, rows.heads), 1).values()
    shown = lines(places_figure(rows.places), 0)
    assert shown["a"][:2] == pytest.approx([0.1, 0.05])
    assert shown["even attention"] == [0.01] * 16


def test_shares_that_are_the_same_are_all_seen():
    rows = result("a", "b", "c")
    shares = sink_figure(rows.layers, rows.heads).axes[1].lines
    assert [line.get_markersize() for line in shares] == [11, 8, 5]  # the largest lies below


def test_long_tables_are_folded_and_not_in_the_terminal():
    rows = result("a")
    for layers, brief in ((12, True), (13, False)):
        many = Rows(replace(rows.layers[0], layer=layer) for layer in range(layers))
        _, view = attention_page(replace(rows, layers=many), {}).sections[1].tables
        assert (view.brief, view.folded) == (brief, not brief)


def test_page_says_what_was_measured_and_what_was_not():
    page = attention_page(result("a", "<b>"), {"command": "seedbed analyze attention"})
    html = page_html(page)
    assert "Attention of a, &lt;b&gt;" in html
    assert "<b>" not in html.replace("<b>0.225</b>", "")
    assert "T = 256" in page.lead
    assert "0.0201" in page.lead  # (H_256 - 1) / 255
    models, differences = page.sections[0].tables
    assert models.rows[0][:6] == ("a", "2 of 3", "4", "7 (5)", "1,227", "0.225")
    assert differences.rows == [("<b>", "a", "−0.0123", "0.100 to 0.400")]
    top, layers = page.sections[1].tables
    assert top.rows[0][:4] == ("<b>", "1", "1", "0.410")
    assert top.rows[0][-1] == "0"  # rounding of nothing
    assert layers.rows[1][-1] == "0.250"
    assert page.sections[0].problems == ["a: not read: 3 × no text"]
    assert page.sections[-1].problems == ["a: layers 2, 5: linear_attention"]
    assert page.definitions == DEFINITIONS
    for row in (models, differences, top, layers):
        assert {len(cells) for cells in row.rows} == {len(row.columns)}


def test_the_heat_maps_image_is_in_the_page_and_its_policy_lets_it_be_shown():
    html = page_html(attention_page(result("a"), {}))
    assert re.search(r'<image xlink:href="data:image/png;base64,', html)
    assert re.search(r'Content-Security-Policy" content="[^"]*img-src data:', html)


def test_each_picture_is_drawn_once_for_the_page_and_its_own_file(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(sections, "inline", lambda figure, told: drawn.append(told) or inline(figure, told))
    page = attention_page(result("a"), {})
    page = replace(page, sections=page.sections[1:2])  # two pictures are enough
    report = write_results(tmp_path, page, {}, {})
    assert drawn == [picture.description for picture in page.pictures]
    assert len(drawn) == 2
    for name in ("sink_heads", "sink_layers"):
        assert (tmp_path / "figures" / f"{name}.svg").read_text() in report.read_text()


def test_a_checkpoint_that_reads_other_tokens_is_named():
    rows = result("a", "b")
    rows.models[1] = replace(rows.models[1], tokens_sha256="other")
    rows.differences.clear()
    told = "b: no difference is shown, it reads other tokens than a"
    assert attention_page(rows, {}).sections[0].problems == ["a: not read: 3 × no text", told]


def test_one_document_has_no_interval_and_short_ones_no_first_tokens():
    rows = result("a", interval=False)
    rows.places.clear()
    page = attention_page(rows, {})
    assert page.sections[0].tables[0].rows[0][6] == "–"
    assert "none has more than 16 tokens" in page_html(page)
    assert page.tiles["mean sink score"] == "0.225"
