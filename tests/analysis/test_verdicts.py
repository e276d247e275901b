"""Each rule on both sides of its threshold: level, numbers and what to do."""

import math
from dataclasses import replace

import pytest
from arms import LAYERS, arm, config, first, residual

from seedbed.analysis.verdicts import fraction, spread, verdicts
from seedbed.measure.budget import BudgetRow
from seedbed.measure.gradients import GradientRow
from seedbed.measure.precision import LayerError
from seedbed.report.preflight_rows import FLAT_SLOPE, ChangeRow, CoordCheck, LostRow, Scaling


def said(about, part: str, *overrides: str) -> tuple[str, str]:
    """(level, text) of the one verdict whose text has ``part``."""
    (verdict,) = [v for v in verdicts(about, config(*overrides)) if part in v.text]
    return verdict.level, verdict.text


def test_a_sound_arm_has_nothing_but_good_verdicts():
    found = verdicts(arm(), config())
    assert {verdict.level for verdict in found} == {"good"}
    assert len(found) == 10  # masking, two branches, growth, budget, loss, gradients, bf16, lost updates, sinks
    assert all(verdict.numbers for verdict in found)


def test_warnings_come_first():
    levels = [
        v.level for v in verdicts(arm(residual=residual([0.9] * 7, mlp=0.01), first=first(rows(lost=1e-3))), config())
    ]
    assert levels == sorted(levels, key=("warning", "note", "good").index)
    assert levels[0] == "warning"


@pytest.mark.parametrize(
    ("maskings", "level", "parts"),
    [
        ([0.98] * 7, "warning", ["98 % of the scale in every norm", "to 1e-12", "γ below 0.61", "std above 0.0095"]),
        ([0.49] * 7, "note", ["ε masks 49 % of the scale in every norm"]),
        ([0.6, *[0.1] * 6], "warning", ["50 % of the scale or more in 1 of 7 norms", "layers.0.attn_norm, 60 %"]),
        ([0.1, 0.06, 0.01, 0.01, 0.01, 0.01, 0.01], "note", ["5.0 % of the scale or more in 2 of 7 norms"]),
        ([0.049] * 7, "good", ["ε masks at most 4.9 % of the scale"]),
    ],
)  # fmt: skip
def test_masking(maskings, level, parts):
    """The advice is S0's: at d = 2048 and epsilon 1e-5, gamma 0.6 masks 9 %."""
    wide = ("model.d_model=2048", "model.norm_eps=1e-5")
    found, text = said(arm(residual=residual(maskings, eps=1e-5)), "ε masks", *wide)
    assert found == level
    for part in parts:
        assert part in text


def test_an_epsilon_that_suffices_is_named():
    """Entries of std 1e-8 are masked even by 1e-12: a hundredth of their square is asked for."""
    tiny = residual([0.9999] * 7)  # σ² = 1e-16
    assert "to 1e-18" in said(arm(residual=tiny), "ε masks")[1]


@pytest.mark.parametrize(
    ("share", "exponent", "level", "parts"),
    [
        (0.049, 0.0, "warning", ["4.9 % of the stream, at every width alike: raise the std of its maps"]),
        (0.051, 0.0, "good", ["5.1 % of the stream, at every width alike."]),
        (2.01, 0.0, "warning", ["201 % of the stream, at every width alike: lower the std"]),
        (1.99, 0.0, "good", ["199 % of the stream"]),
        (0.5, 0.04, "good", ["at every width alike."]),
        (0.5, 0.06, "note", ["grows with width as d^0.06: γ 5/6 in its 3 maps would balance it (init.law=balanced)."]),
        (0.01, -0.5, "warning", ["1.0 % of the stream and shrinks with width as d^-0.5: γ 5/6 in its 3 maps"]),
    ],
)  # fmt: skip
def test_branches(share, exponent, level, parts):
    about = arm(
        residual=residual([1e-7] * 7, mlp=share),
        scaling={"attention": Scaling(2, 0.0, 1.0), "mlp": Scaling(3, exponent, 5 / 6)},
    )
    found, text = said(about, "MLP branch")
    assert found == level
    for part in parts:
        assert part in text
    assert said(about, "attention branch")[0] == "good"


def test_a_branch_of_copied_weights_has_no_exponent():
    about = arm(scaling={}, residual=residual([1e-7] * 7, attn=3.0))
    assert said(about, "attention branch") == (
        "warning", "The attention branch adds 300 % of the stream: lower the std of its maps.",
    )  # fmt: skip
    assert "width" not in said(about, "MLP branch")[1]


def test_a_std_that_does_not_follow_the_width_is_not_told_a_gamma():
    about = arm("gpt2", scaling={"attention": Scaling(2, 1.0, 0.5), "mlp": Scaling(3, 1.5, 0.5)})
    found, text = said(about, "MLP branch")
    assert found == "note"
    assert "grows with width as d^1.5: choose the std anew at another width, or init.law=balanced" in text


@pytest.mark.parametrize(("flow", "level"), [(9.9, "good"), (10.1, "warning")])
def test_growth(flow, level):
    found, text = said(arm(residual=residual([1e-7] * 7, flow=flow)), "the stream moves")
    assert found == level
    advice = "which is 9.9 % of it at the end: raise the embedding’s std 1.01 times, or lower those of attn.o"
    assert (advice in text) == (level == "warning")


@pytest.mark.parametrize(
    ("quantity", "predicted", "measured", "level", "part"),
    [
        ("down", 0.1, 0.199, "good", "within a factor of 1.99, in “down”"),
        ("down", 0.1, 0.201, "note", "2.0 times more: its normal variables are not these"),
        ("attention out", 0.201, 0.1, "note", "2.0 times less: it ignores that attention averages"),
        (
            "per block",
            0.001,
            0.1,
            "good",
            "1.02, in “q”",
        ),  # of the stream: S1's algebra takes an embedding of variance 1
    ],
)
def test_budget(quantity, predicted, measured, level, part):
    found, text = said(arm(budget=[BudgetRow("q", 0.5, 0.51), BudgetRow(quantity, predicted, measured)]), "budget")
    assert found == level
    assert part in text


def test_a_budget_of_zeros_says_nothing():
    assert not [v for v in verdicts(arm(budget=[BudgetRow("q", 0.0, 0.0)]), config()) if "budget" in v.text]


@pytest.mark.parametrize(
    ("excess", "level"), [(0.09, "good"), (0.11, "note"), (0.49, "note"), (0.51, "warning"), (math.inf, "warning")]
)
def test_first_loss(excess, level):
    about = arm(first=first(rows(), loss=6.238 + excess, variance=4 * 0.2))
    found, text = said(about, "first loss")
    assert found == level
    if level != "good":  # logits of std 2·√0.2 add 4·0.1, those of √0.2 add 0.1
        assert "multiply the std of the head by 0.50" in text
    assert ("embedding, which is the head too" in said(about, "first loss", "model.tied=true")[1]) == (level != "good")


def rows(**rms: float) -> list[GradientRow]:
    told = {"embed": 1e-3, "attn.q": 1e-3, "mlp.up": 1e-3, "head": 1e-3, "norm": 1e-3}
    told |= {role.replace("_", "."): value for role, value in rms.items() if role != "lost"}
    return [GradientRow(role, 64 * value, value, 0.1) for role, value in told.items()]


@pytest.mark.parametrize(
    ("rms", "optimizer", "level", "part"),
    [
        (1.01e-7, "muon", "good", "within a factor of 9,901"),
        (0.99e-7, "muon", "note", "10,101 times in rms, from attn.q (9.90·10⁻⁸) to mlp.up"),
        (1.1e-8, "adamw", "note", "AdamW and Muon rescale each"),
        (0.9e-8, "adamw", "warning", "below optim.eps = 1e-08, so that AdamW moves it by less than its rate: lower"),
        (0.9e-8, "muon", "note", "AdamW and Muon rescale each"),
    ],
)  # fmt: skip
def test_gradients(rms, optimizer, level, part):
    found, text = said(arm(first=first(rows(attn_q=rms))), "radient", f"optim.name={optimizer}")
    assert found == level
    assert part in text


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite(bad):
    assert said(arm(first=first(rows(mlp_up=bad))), "radient") == (
        "warning", "The gradient of mlp.up is not finite: lower the std of the matrices behind it.",
    )  # fmt: skip


def test_zero_gradients_by_design_and_not():
    dead = first(rows(attn_q=0.0, embed=0.0))
    level, text = said(arm(first=dead), "No gradient reaches")
    assert level == "warning"
    assert "embed, attn.q" in text
    assert said(arm("mup", first=dead), "zero by design")[0] == "good"
    assert not [v for v in verdicts(arm(), config()) if "No gradient" in v.text]


def test_zero_queries_alone_leave_keys_without_a_gradient():
    plan = arm("mup").plan
    only_queries = replace(plan, rows=tuple(row for row in plan.rows if row.role != "head"))
    about = arm(plan=only_queries, first=first(rows(attn_k=0.0)))
    assert said(about, "Queries are zero by design")[0] == "good"
    about = arm(plan=only_queries, first=first(rows(attn_k=0.0, mlp_up=0.0)))
    assert said(about, "No gradient reaches")[0] == "warning"


@pytest.mark.parametrize(
    ("error", "precision", "level"),
    [(0.049, "bf16", "good"), (0.051, "bf16", "warning"), (0.051, "pure_bf16", "warning"), (0.051, "fp32", "note")],
)
def test_precision(error, precision, level):
    about = arm(precision=[LayerError(0, 0.001), LayerError(1, error), *(LayerError(i, 0.0) for i in (2, 3))])
    found, text = said(about, "bf16 forward", f"train.precision={precision}")
    assert found == level
    assert f"{100 * error:.2g} % at most, in the stream after layer 1" in text
    assert "in the logits" in said(arm(precision=[LayerError(LAYERS, 0.01)]), "bf16 forward")[1]
    broken = arm(precision=[LayerError(0, 0.001), LayerError(1, math.nan), LayerError(2, math.inf)])
    assert said(broken, "not finite from layer 1")[0] == "warning"


@pytest.mark.parametrize(
    ("share", "precision", "level"),
    [(0.099, "fp32", "good"), (0.101, "fp32", "note"), (0.101, "pure_bf16", "warning"), (0.099, "pure_bf16", "good")],
)
def test_lost_updates(share, precision, level):
    about = arm(first=first(rows(), lost=share))
    assert said(about, "first update", f"train.precision={precision}")[0] == level


def test_updates_by_decay_alone_do_not_count_as_lost():
    step = first(rows(attn_q=0.0))
    lost = [LostRow("head", math.nan), LostRow("embed", 0.9), LostRow("attn.q", 1.0), LostRow("mlp.up", 0.05)]
    level, text = said(arm(first=replace(step, lost=lost)), "first update")
    assert level == "good"
    assert "5.0 % of the first update of mlp.up" in text


@pytest.mark.parametrize(("score", "level"), [(0.149, "good"), (0.151, "warning")])
def test_sinks(score, level):
    sink = replace(arm().sink, scores=((0.1, 0.1), (score, score), (0.1, 0.1)))
    found, text = said(arm(sink=sink), "first token")
    assert found == level
    if level == "warning":
        assert "Layer 1 starts with 0.151 of its attention on the first token, 1.5 times" in text
        assert "lower the std of attn.q and attn.k" in text


@pytest.mark.parametrize(
    ("law", "slope", "level", "part"),
    [
        (
            "mup",
            0.99 * FLAT_SLOPE,
            "good",
            f"flat over widths 64 to 512: the steepest slope is {0.99 * FLAT_SLOPE:+.2f}",
        ),
        ("normal", -0.99 * FLAT_SLOPE, "good", f"the steepest slope is {-0.99 * FLAT_SLOPE:+.2f}, of logits."),
        (
            "mup",
            -1.5,
            "warning",
            "of logits after step 2 goes with the width as d^-1.5 over widths 64 to 512, where mup",
        ),
        ("mup", 1.01 * FLAT_SLOPE, "warning", "lower optim.lr, and check again."),
        ("normal", 1.01 * FLAT_SLOPE, "note", "tune optim.lr at each width, or set init.law=mup."),
    ],
)
def test_coordinate_check(law, slope, level, part):
    rows = (ChangeRow("logits", 1, (0.0, 0.0), None), ChangeRow("logits", 2, (1.0, 1.0), slope))
    check = CoordCheck("title", "adamw", 1e-3, "random ids", 128, 2, (64, 512), rows)
    found = [v for v in verdicts(arm(law, coordinates=check), config()) if v.numbers.get("activation") == "logits"]
    assert [verdict.level for verdict in found] == [level]
    assert part in found[0].text


@pytest.mark.parametrize(
    ("gamma", "text"),
    [
        (5 / 6, "5/6"),
        (1.0, "1"),
        (0.5, "0.5"),
        (2 / 3, "2/3"),
        (0.75, "3/4"),
        (0.71, "0.71"),
        (1.0004, "1"),
        (0.3301, "0.33"),
    ],
)
def test_gammas_as_people_write_them(gamma, text):
    assert fraction(gamma) == text


def test_spreads():
    assert spread(0.0249, 0.0251) == "2.5 %"
    assert spread(0.08, 0.11) == "8.0 to 11 %"
