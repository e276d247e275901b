"""The page of instruction-following difficulty: every number with its name, every foreign text escaped."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from seedbed.measure.ifd import correlation, summary
from seedbed.measure.table import Rows
from seedbed.report.ifd_figures import Model, change_figure, distribution_figure, length_bias_figure, window_of
from seedbed.report.ifd_page import EXCERPT, ifd_page
from seedbed.report.ifd_rows import CorrelationRow, IfdResult, IfdRow, ResponseLosses, Sample, SummaryRow
from seedbed.report.sections import page_html
from seedbed.report.style import AFTER, BEFORE, figure_svg


def result(two: bool, n: int = 30, **changes) -> IfdResult:
    rows = Rows(
        IfdRow(
            f"r{i}",
            f"a.jsonl:{i}",
            20 + i,
            3 + 4 * i,
            ResponseLosses(1 + i / n, 1.5, (1 + i / n) / 1.5),
            *((ResponseLosses(2.0, 2.5, 0.8), (1 + i / n) / 2, 0.6) if two else ()),
        )
        for i in range(n)
    )
    ifds, lengths = [row.checkpoint.ifd for row in rows], [row.response_tokens for row in rows]
    values = {
        "checkpoint": "<after>",
        "base": "before" if two else None,
        "template": "tokenizer",
        "begins": "<|bos|>",
        "begin_opens_turns": False,
        "base_has_template": False,
        "rows": rows,
        "summaries": Rows(
            SummaryRow("all", name, summary(ifds)) for name in ("checkpoint.ifd", *(["ratio"] if two else []))
        ),
        "correlations": Rows([CorrelationRow("all", "response_tokens", "checkpoint.ifd", correlation(lengths, ifds))]),
        "samples": [Sample("lowest", rows[0], "<script>问题", "回答 & " + "长" * 2 * EXCERPT)],
        "skipped": {"empty response": 2},
        "asked": None,
    }
    return IfdResult(**(values | changes))


@pytest.mark.parametrize("two", [False, True])
def test_a_page(two):
    page = ifd_page(result(two), {"command": "seedbed analyze ifd"})
    html = page_html(page)
    assert "<script>" not in html and "&lt;script&gt;问题" in html and "回答 &amp; 长" in html
    assert "IFD of &lt;after&gt;" in html
    assert f"… (+{EXCERPT + 5:,} characters)" in html
    assert "left out of 32 records: 2 × empty response" in html
    assert "seedbed analyze ifd" in html
    assert "+1.000" in html  # Spearman of what rises with the length
    assert ("Response, 3 tokens; loss ratio 0.500" in html) == two and "Instruction, 20 tokens" in html
    assert ("before has no chat template of its own" in html) == two
    assert ("median loss ratio" in page.tiles) == two
    assert page.tiles["responses under 20 tokens"] == "5"  # 3, 7, 11, 15, 19
    assert [picture.name for picture in page.pictures] == (
        ["ifd_distribution", "length_bias", "ifd_change"] if two else ["ifd_distribution", "length_bias"]
    )
    assert page_html(ifd_page(result(two), {"command": "seedbed analyze ifd"})) == html  # the same bytes


@pytest.mark.usefixtures("undrawn")
def test_what_the_page_says_of_the_reading():
    plain = page_html(ifd_page(result(True, template="none", begins=""), {}))
    assert "plain text" in plain and "no loss counts the first token" in plain
    assert "no chat template of its own" not in plain
    chat = page_html(ifd_page(result(True, template="chatml", base_has_template=True), {}))
    assert "template chatml" in chat and "Both losses start from &lt;|bos|&gt;" in chat
    assert "no chat template of its own" not in chat
    assert "opens turns with" not in chat
    opens = page_html(ifd_page(result(True, begin_opens_turns=True), {}))
    assert "opens turns with &lt;|bos|&gt;" in opens and "no loss counts its first token" in opens
    assert "Both losses start from" not in opens
    in_turns = "the first records of each file, in turns, until there are 1,000"
    assert in_turns not in opens and in_turns in page_html(ifd_page(result(True, asked=1000), {}))


def test_a_page_of_a_single_record():
    page = ifd_page(result(True, n=1), {})
    assert "records" in page.tiles and page_html(page)
    assert math.isnan(result(True, n=1).summaries[0].summary.std)


def test_the_window_is_odd_and_a_tenth():
    assert [window_of(n) for n in (0, 10, 60, 100, 1000)] == [5, 5, 7, 11, 101]


def lines(figure: Figure, panel: int) -> list[list[float]]:
    return [list(line.get_ydata()) for line in figure.axes[panel].lines]  # pyright: ignore


def model(name: str, ifd: list[float], color: str) -> Model:
    return Model(name, [2 * value for value in ifd], [2.0] * len(ifd), ifd, color)


def test_the_length_bias_figure_shows_what_it_is_given():
    lengths = [float(n) for n in range(2, 42)]
    models = [
        model("before", [1 - 1 / n for n in lengths], BEFORE),
        model("after", [1 + 1 / n for n in lengths], AFTER),
    ]
    figure = length_bias_figure(lengths, models, 20)
    labels = ["conditional loss (nats per token)", "unconditional loss (nats per token)", "IFD"]
    assert [axes.get_ylabel() for axes in figure.axes] == 2 * labels
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["before", "", "", "after", "", ""]
    limits = [axes.get_ylim() for axes in figure.axes]
    assert limits[0] == limits[1] == limits[3] == limits[4]
    assert limits[2] == limits[5] != limits[0]
    assert all(axes.get_xscale() == "log" for axes in figure.axes)
    for place, values in ((0, models[0].conditional), (2, models[0].ifd), (5, models[1].ifd)):
        offsets = figure.axes[place].collections[0].get_offsets()
        assert offsets[:, 0].tolist() == lengths and offsets[:, 1].tolist() == list(values)  # pyright: ignore
    assert lines(figure, 1)[0] == [2.0] * 36
    assert lines(figure, 2)[0] == pytest.approx([1 - 1 / n for n in lengths[2:-2]])  # monotone: the middle of five


def test_the_change_figure_shows_what_it_is_given():
    before, after = model("before", [0.5, 0.75], BEFORE), model("after", [0.25, 1.0], AFTER)
    figure = change_figure(before, after, [1.5, 0.5], [10.0, 40.0], 20)
    drawn = [axes.collections[0].get_offsets().tolist() for axes in figure.axes]  # pyright: ignore
    assert drawn == [[[0.5, 0.25], [0.75, 1.0]], [[0.5, 1.5], [0.75, 0.5]], [[10.0, 1.5], [40.0, 0.5]]]


def test_shares_add_up():
    figure = distribution_figure([model("one", [0.5, 0.6, 1.2, 1.3], AFTER)])
    outline = figure.axes[0].patches[0].get_data().values  # pyright: ignore
    assert sum(outline) == pytest.approx(1.0)


def test_one_far_value_does_not_flatten_the_distribution():
    values = [0.8 + 0.001 * i for i in range(399)] + [50.0]
    figure = distribution_figure([model("one", values, AFTER)])
    steps = figure.axes[0].patches[0].get_data()  # pyright: ignore
    assert (steps.edges[0], steps.edges[-1]) == pytest.approx(tuple(np.quantile(values, [0.005, 0.995])))
    assert sum(steps.values) == pytest.approx(1)  # the outermost bar holds it
    assert max(steps.values) < 0.04
    assert "and beyond" in figure.axes[0].get_xlabel()


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_how_many_lie_beyond():
    html = page_html(ifd_page(result(True), {}))
    # 30 different values of one model and 30 equal ones of the other: the two ends are beyond
    assert "over the middle 99.0 % of all values; the outermost hold those beyond, 0 of before and 2 of" in html


def test_figures_of_one_value():
    one = model("one", [1.0], AFTER)
    for figure in (
        length_bias_figure([30.0], [one], 20),
        distribution_figure([one]),
        change_figure(one, one, [1], [30.0], 20),
    ):
        assert "<svg" in figure_svg(figure)
