"""The page of a preflight: whole, without network, and it says what was found."""

import math
import re
from dataclasses import replace

import pytest
from arms import arm, config, first
from test_figures import overlapping
from test_page import check

from seedbed.analysis.resources import memory_parts
from seedbed.analysis.verdicts import verdicts
from seedbed.measure.gradients import GradientRow
from seedbed.report.preflight import PreflightReport, preflight_page, tables
from seedbed.report.preflight_figures import (
    budget_figure,
    gradient_figure,
    masking_figure,
    precision_figure,
    residual_figure,
    sink_figure,
    width_figure,
)
from seedbed.report.preflight_rows import Arm, ChangeRow, CoordCheck, Resources, SlopeRow
from seedbed.report.preflight_tables import gradient_table, percent, plan_table

SLOPES = [
    SlopeRow(branch, (64, 128, 256), (0.1, 0.2, 0.4), slope, 0.01, 0.5, 128)
    for branch, slope in (("attention", 1.004), ("mlp", -0.001), ("flow", 0.5))
]
CHECK = CoordCheck(
    "mup base_width=256", "muon", 1e-3, "random ids", 128, 2, (64, 128),
    (ChangeRow("logits", 1, (0.0, 0.0), None), ChangeRow("logits", 2, (0.1, 0.2), 1.0)),
)  # fmt: skip
LAWS = (("gamma", {}), ("gpt2", {}), ("mup", {}), ("balanced", {}))


def report(*arms: Arm) -> PreflightReport:
    c = config()
    return PreflightReport(
        config=c.dump(),
        command="seedbed preflight '<b>c.yaml</b>'",
        arms=list(arms),
        verdicts=[verdicts(one, c) for one in arms],
        resources=Resources(memory_parts(c, 64), 0.5, 1000, "fp32 on cpu", 100, 50_000),
        data={"folder": "runs/store", "heldout tokens": 12_345},
        versions={"torch": "2.13.0"},
    )


@pytest.fixture(scope="module")
def four() -> list[Arm]:
    return [arm(law, options, slopes=SLOPES, coordinates=CHECK) for law, options in LAWS]


@pytest.mark.parametrize("count", [1, 4])
def test_page_is_whole_and_needs_no_network(four, count):
    page = preflight_page(report(*four[:count]))
    seen = check(page)
    assert seen.tags.count("svg") == 7 + count  # a coordinate check each
    assert all(reference.startswith("#") for reference in seen.references)
    assert not re.search(r"@import|url\((?!#)", page)
    assert not {"script", "link", "iframe", "img", "b>c.yaml"} & set(seen.tags)
    assert "default-src 'none'" in page
    assert "seedbed preflight &#39;&lt;b&gt;c.yaml&lt;/b&gt;&#39;" in page


def test_page_says_what_was_found(four):
    text = " ".join(check(preflight_page(report(*four))).text.split())
    for shown in (
        "what these initializations do",
        "3-layer decoder of width 64, vocabulary 512, seed 0",
        "1,000 held-out tokens",
        "Good ε masks at most 1.0·10⁻⁵ % of the scale in any norm.",
        "layers.*.mlp.down 3 64×192 N(0, 0.005208²) N(0, 0.008165²)",
        "The change of logits after step 2 goes with the width as d^1 over widths 64 to 128",
        "muon at its peak rate 0.001, on 128 tokens (random ids), 2 seeds",
        "mlp slope -0.001 ± 0.010",
        "100 steps of 0.500 s, 50,000 tokens: about 50 s on this machine, from one step on 1,000 tokens, timed in fp32",
        "heldout tokens 12,345",
        "torch 2.13.0",
        "norm_eps: 1.0e-12",
    ):
        assert shown in text, shown


def test_what_was_not_asked_for_is_not_there():
    text = check(preflight_page(report(arm()))).text
    assert "what this initialization does" in text
    assert "Over widths" not in text
    assert "How far each activation" not in text


def figures(arms: list[Arm]) -> list:
    made = [
        masking_figure,
        residual_figure,
        budget_figure,
        precision_figure,
        gradient_figure,
        sink_figure,
        width_figure,
    ]
    return [make(arms) for make in made]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_text_covers_another(four, count):
    for figure in figures(four[:count]):
        assert overlapping(figure) == []


def test_every_arm_has_its_colour_and_marker_everywhere(four):
    for figure in figures(four):
        lines = [
            line for axes in figure.axes for line in axes.get_lines() if line.get_label() in {a.title for a in four}
        ]
        looks = {}
        for line in lines:
            looks.setdefault(line.get_label(), set()).add((line.get_color(), line.get_marker()))
        assert all(len(look) == 1 for look in looks.values())
        assert len({next(iter(look)) for look in looks.values()}) == len(looks)


def test_figures_show_the_rows(four):
    one = four[0]
    own, usual = masking_figure([one]).axes
    assert list(own.get_lines()[0].get_ydata()) == [100 * norm.masking for norm in one.residual.norms]
    assert list(usual.get_lines()[0].get_ydata()) == [100 * norm.masking_usual for norm in one.residual.norms]
    assert list(own.get_lines()[0].get_xdata()) == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    flow = residual_figure([one]).axes[2]
    assert list(flow.get_lines()[0].get_ydata()) == [layer.flow for layer in one.residual.layers]
    scores, uniform = sink_figure([one]).axes[0].get_lines()
    assert list(scores.get_ydata()) == one.sink.layers
    assert uniform.get_ydata()[0] == one.sink.uniform
    error, lost = precision_figure([one]).axes
    assert list(error.get_lines()[0].get_ydata()) == [100 * row.error for row in one.precision]
    assert list(lost.get_lines()[0].get_xdata()) == [100 * row.share for row in one.first.lost]
    rms, relative = gradient_figure([one]).axes
    assert list(rms.get_lines()[0].get_xdata()) == [row.rms for row in one.first.gradients]
    assert list(relative.get_lines()[0].get_xdata()) == [row.relative for row in one.first.gradients]
    assert list(width_figure([one]).axes[1].get_lines()[0].get_ydata()) == [0.1, 0.2, 0.4]
    assert "mlp 0.00" in width_figure([one]).axes[0].get_lines()[0].get_label()
    quantities = [label.get_text() for label in budget_figure([one]).axes[0].get_yticklabels()]
    assert quantities == [row.quantity for row in one.budget]


def test_a_zero_gradient_has_no_mark_and_a_zero_loss_of_updates_has():
    rows = [GradientRow("attn.q", 0.0, 0.0, None), GradientRow("attn.o", 1.0, 0.1, 0.2)]
    about = arm(first=first(rows, lost=0.0))
    assert [len(axes.get_lines()[0].get_xdata()) for axes in gradient_figure([about]).axes] == [1, 1]
    assert list(precision_figure([about]).axes[1].get_lines()[0].get_xdata()) == [0.0, 0.0]


def test_the_plan_joins_equal_layers(four):
    rows = {row.labels[0]: row for row in plan_table([one.plan for one in four[:2]]).rows}
    assert rows["layers.*.attn.o"].labels == ("layers.*.attn.o", "3", "64×64")
    assert rows["layers.*.attn.o"].cells == [("N(0, 0.01562²)",), ("N(0, 0.008165²)",)]
    assert sum(int(row.labels[1]) for row in rows.values()) == len(four[0].plan.rows)


def test_the_plan_says_what_is_drawn_jointly_and_what_is_kept():
    plan = arm("gpt2").plan
    q = next(row for row in plan.rows if row.role == "attn.q")
    from seedbed.init.plan import Joint
    from seedbed.laws import KEPT

    joint = replace(q, joint=Joint("layers.0.attn.qkv.weight", (192, 64), (0, 64)))
    rows = plan_table([replace(plan, rows=(joint, replace(q, distribution=KEPT)))]).rows
    assert [row.cells for row in rows] == [[("N(0, 0.02²), in qkv",)], [("kept",)]]


def test_tables_have_a_cell_for_every_arm(four):
    for name, table in tables(four).items():
        for row in table.rows:
            assert len(row.labels) == len(table.labels), name
            assert len(row.cells) == len(table.arms) == 4, name
            assert all(len(cell) == len(table.parts) for cell in row.cells), name
    assert list(tables([arm()])) == ["plan", "masking", "residual", "budget", "layers", "gradients", "first"]


def test_tables_show_the_numbers(four):
    shown = {name: {row.labels[0]: row.cells[0] for row in table.rows} for name, table in tables(four).items()}
    assert shown["masking"]["layers.1.attn_norm"] == ("1.0·10⁻⁵ %", "0.0010 %")
    assert shown["residual"]["1"] == ("0.500", "0.400", "1.00")
    assert shown["budget"]["per block"] == ("0.100", "0.0900")
    assert shown["layers"]["2"] == ("0.30 %", "0.105")
    assert shown["layers"]["logits"] == ("0.30 %", "–")
    assert shown["gradients"]["attn.v"] == ("0.192", "0.00300", "1.0 %")
    assert shown["gradients"]["norm"][2] == "–"
    assert shown["first"]["ln V"] == ("6.2380",)
    assert shown["coordinates"]["logits"] == ("–", "+1.00")
    assert percent(math.nan) == "–"


def test_a_page_of_gradients_that_are_zero_by_design():
    """Under mup only the head learns at step 0."""
    rows = [GradientRow("attn.q", 0.0, 0.0, None), GradientRow("head", 1.0, 1e-3, None)]
    one = arm("mup", first=first(rows))
    assert [len(axes.get_lines()[0].get_xdata()) for axes in gradient_figure([one]).axes] == [1, 0]


def test_a_plan_that_differs_from_layer_to_layer_names_them():
    plans = [arm("magnitude").plan, arm("gpt2").plan]
    names = [row.labels[0] for row in plan_table(plans).rows]
    assert "layers.0.attn.q" in names
    assert "layers.*.attn_norm" in names
    assert len(set(names)) == len(names)


def test_what_has_no_gradient_loses_none_of_its_update():
    rows = [GradientRow("attn.q", 0.0, 0.0, None), GradientRow("attn.o", 1.0, 0.1, 0.2)]
    table = gradient_table([arm(first=first(rows, lost=0.5))])
    assert [row.cells[0][2] for row in table.rows] == ["–", "50 %"]
