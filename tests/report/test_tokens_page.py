"""The page on token gains: every number of the result where a person looks for it, and figures of few rows."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from seedbed.measure.table import Rows
from seedbed.report.sections import page_html
from seedbed.report.tokens_figures import bins_figure, groups_figure, histograms_figure
from seedbed.report.tokens_page import tokens_page
from seedbed.report.tokens_rows import GroupRow, HistogramRow, Mean, TokenGains, TokenRow


def row(kind: str, name: str, gain: Mean, documents: int = 12) -> GroupRow:
    bits = Mean(0.12034, 0.1, -0.2) if documents >= 10 else None
    return GroupRow(
        kind, name, documents, 1000, 3000, 0.5, 2.5, 2.25, 2.0, 1.0821, 0.9618, bits, gain,
        Mean(0.125, 0.11, 0.14), 0.6, 0.4, 0.3,
    )  # fmt: skip


KNOWN, UNKNOWN = Mean(0.25, 0.2, 0.3), Mean(-0.75, None, None)


@pytest.fixture
def result() -> TokenGains:
    return TokenGains(
        a="one", b="two", tokenizer="abc", vocabulary=300, length=64, cut_documents=3, cut_tokens=4321,
        skipped={"empty text": 2}, remarks=["two has 5 outputs beyond the vocabulary."], resamples=1000, seed=0,
        overall=row("all", "all", KNOWN), loss_std_a=2.5, loss_std_b=2.0, slope=0.4321,
        bins=Rows(row("difficulty", str(number), KNOWN) for number in range(1, 11)),
        domains=Rows([row("domain", "law & order", KNOWN), row("domain", "verse", UNKNOWN, 4)]),
        languages=Rows([row("language", "(none)", KNOWN)]),
        documents=Rows(),
        gaining=Rows([TokenRow(7, " <b>\n", 3, 2, 2.0, 1.0, 1.0, 3.0)]), losing=Rows(),
        gain_histogram=Rows([HistogramRow(-1, 0, 4), HistogramRow(0, 1, 6)]),
        probability_gain_histogram=Rows([HistogramRow(-1, 0, 4), HistogramRow(0, 1, 6)]),
    )  # fmt: skip


def test_numbers_and_what_was_left_out(result):
    page = tokens_page(result, [], {"command": "seedbed analyze tokens <x>"})
    html = page_html(page)
    for text in (
        "both predict the same 1,000 tokens of 12 documents",
        "gain of B, nats per token (95 % interval: +0.200 to +0.300)",
        "2.50 nats under A and 2.00 under B", "(Var A − Var B) / (2 Var difficulty) = +0.432",
        "3 were cut, 4,321 tokens left off", "Not read: 2 × empty text.", "two has 5 outputs beyond the vocabulary.",
        "Fewer than 10 documents, so no interval: verse.", "law &amp; order", "&lt;b&gt;\\n", "regression to the mean",
        "no number has an error bar over training seeds", "seedbed analyze tokens &lt;x&gt;", "1,000, 0",
    ):  # fmt: skip
        assert text in html, text
    groups = page.sections[2].tables[0].rows
    assert [cells[0] for cells in groups] == ["law & order", "verse"]  # no language was told
    assert groups[0][4:6] == ["+0.250", "+0.200 to +0.300"]
    assert groups[1][4:6] == ["−0.750", "–"]
    losses = page.sections[2].tables[1].rows
    assert losses[0][3:] == ["1.082", "0.9618", "+0.1203", "+0.1000 to −0.2000", "3,000"]
    assert losses[1][5:7] == ["–", "–"]


def test_texts_without_domain_and_language_have_no_such_section(result):
    none = replace(result, domains=Rows([row("domain", "(none)", KNOWN)]))
    titles = [section.title for section in tokens_page(none, [], {}).sections]
    assert titles == ["How the gain is spread", "By difficulty", "Tokens"]


def test_figures_show_intervals_where_there_are_some(result):
    left, right = groups_figure(result.domains).axes
    drawn = [np.asarray(line.get_xdata()).tolist() for line in left.lines]
    assert drawn == [[0, 0], [0.25], [0.2, 0.3], [-0.75]]  # the zero line; no interval of the second
    assert "nats" in left.get_xlabel()
    assert "probability" in right.get_xlabel()
    assert [text.get_text() for text in left.get_yticklabels()] == ["law & order (12)", "verse (4)"]
    axes = bins_figure(result.bins).axes[0]
    assert len(axes.get_xticklabels()) == 10


def test_bars_are_coloured_by_who_is_better(result):
    bars = [patch for patch in histograms_figure(result).axes[0].patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [4, 6]
    assert bars[0].get_facecolor() != bars[1].get_facecolor()
