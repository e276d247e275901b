"""Slopes over widths against theory (science section 2), each branch by itself over 16 seeds, epsilon 1e-12."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from seedbed.analysis.scaling import branch_scaling
from seedbed.analysis.widths import _fit, over_widths
from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.data.split import Batch
from seedbed.errors import InputError
from seedbed.laws import LAWS, Distribution
from seedbed.report.preflight_rows import GammaRow, SlopeRow

MODELS = {
    "swiglu, gated": ["model.attention.gate=elementwise", "model.ffn.kind=swiglu"],
    "two-map": ["model.ffn.kind=gelu"],
}


def model(*overrides: str) -> ModelConfig:
    """One layer, d_ff/d = 2, heads of 32."""
    shape = ["model.vocab_size=300", "model.d_model=64", "model.n_layers=1", "model.attention.n_heads=2"]
    return Config.load(None, [*shape, "model.ffn.d_ff=128", *overrides]).model


def batch(ids: torch.Tensor, doc_ids: torch.Tensor | None = None) -> Batch:
    doc_ids = torch.zeros_like(ids) if doc_ids is None else doc_ids
    return Batch(ids, ids, doc_ids, torch.arange(ids.shape[1]).expand_as(ids))


BATCH = batch(torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0)))


def measured(init: InitConfig, widths: list[int], *overrides: str, seeds: int = 16) -> list[SlopeRow]:
    return over_widths(model(*overrides), init, widths, BATCH, seeds)[0]


@cache
def slopes(name: str, gamma: float, widest: int = 512, law: str = "gamma") -> dict[str, SlopeRow]:
    widths = [width for width in (64, 128, 256, 512, 1024) if width <= widest]
    init = InitConfig.model_validate({"law": law, "gamma": gamma})
    return {row.branch: row for row in measured(init, widths, *MODELS[name])}


THEORY = [  # k(1/2 - gamma) + gamma for gamma 1/2, 3/4, 1, 5/4
    ("two-map", "attention", (0.5, 0.25, 0.0, -0.25)),
    ("swiglu, gated", "attention", (0.5, 0.25, 0.0, -0.25)),  # the gate is near 1/2, no map in series
    ("two-map", "mlp", (0.5, 0.25, 0.0, -0.25)),
    ("swiglu, gated", "mlp", (0.5, 0.0, -0.5, -1.0)),
]
GAMMAS = (0.5, 0.75, 1.0, 1.25)


@pytest.mark.parametrize(("name", "branch", "expected"), THEORY)
def test_each_branch_grows_as_its_number_of_maps_says(name, branch, expected):
    rows = [slopes(name, gamma)[branch] for gamma in GAMMAS]
    assert [row.expected for row in rows] == pytest.approx(expected)
    assert [row.slope for row in rows] == pytest.approx(expected, abs=0.05)
    assert all(row.stderr < 0.02 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "branch", "expected"), THEORY)
def test_each_branch_grows_so_up_to_width_1024(name, branch, expected):
    assert [slopes(name, gamma, 1024)[branch].slope for gamma in GAMMAS] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.25])
@pytest.mark.parametrize("name", MODELS)
def test_the_flow_follows_its_attention(name, gamma):
    """d^(1 - gamma), S0 section 2.4, for SwiGLU too. At 3/4 its two branches are alike at these widths."""
    row = slopes(name, gamma)["flow"]
    assert row.expected == pytest.approx(1 - gamma)
    assert row.slope == pytest.approx(1 - gamma, abs=0.05)


@pytest.mark.parametrize("gamma", [0.75, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_balanced_branches_keep_their_size(name, gamma):
    for row in slopes(name, gamma, law="balanced").values():
        assert row.expected == pytest.approx(0)
        assert row.slope == pytest.approx(0, abs=0.05), row


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.75, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_balanced_branches_keep_their_size_up_to_width_1024(name, gamma):
    for row in slopes(name, gamma, 1024, "balanced").values():
        assert row.slope == pytest.approx(0, abs=0.05), row


def test_scale_of_queries_and_keys_moves_no_slope():
    """Scores of one size at every width, gamma 1/2, where those of gamma 1 vanish."""
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"attn.q": 0.5, "attn.k": 0.5}})
    attention = measured(init, [64, 128, 256])[0]
    assert attention.expected == pytest.approx(0)
    assert attention.slope == pytest.approx(0, abs=0.05)


def test_the_models_own_epsilon_is_measured():
    """It masks the embedding more the wider the model is: 4 % at 64 and 72 % at 512."""
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0})
    masked = {row.branch: row.slope for row in measured(init, [64, 512], "model.norm_eps=1e-5", seeds=4)}
    assert masked["attention"] < slopes("two-map", 1.0)["attention"].slope - 0.15


def test_a_row_is_one_story():
    row = slopes("two-map", 0.75)["attention"]
    assert row.widths == (64, 128, 256, 512)
    assert np.polyfit(np.log(row.widths), np.log(row.ratios), 1)[0] == pytest.approx(row.slope)


def test_standard_error_is_that_of_the_mean_over_seeds():
    two_seeds = np.array([[0.0, 0.0], [1.0, 3.0]])  # slopes 1 and 3
    assert _fit([1, math.e], two_seeds) == pytest.approx((2.0, 1.0))


@pytest.mark.parametrize(
    ("law", "overrides"),
    [
        ({"law": "gpt2"}, []),
        ({"law": "gamma", "gamma": 1.0, "by_role": {"pos": 0.5}}, ["model.position=learned"]),
        ({"law": "gamma", "gamma": 0.5, "by_role": {"mlp.down": 1.0}}, []),
    ],
)
def test_what_is_expected_is_what_the_law_says(law, overrides):
    init = InitConfig.model_validate(law)
    said = {branch: scaling.exponent for branch, scaling in branch_scaling(model(*overrides), init).items()}
    told = {row.branch: row.expected for row in measured(init, [32, 64], *overrides, seeds=2)}
    assert told == {**said, "flow": max(said.values())}


def test_the_larger_table_decides_where_positions_are_learned():
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"pos": 0.5}})
    attention = measured(init, [64, 128, 256], "model.position=learned")[0]
    assert attention.expected == -0.5
    assert attention.slope == pytest.approx(-0.5, abs=0.05)


def test_no_power_of_the_width_has_no_expected_slope(monkeypatch):
    monkeypatch.setitem(
        LAWS, "odd", lambda fact: Distribution("normal", 1 / (fact.d_in + 100 * fact.role.startswith("mlp")))
    )
    rows = measured(InitConfig(law="odd"), [32, 64, 128], seeds=2)
    assert {row.branch: row.expected for row in rows} == {"attention": 0.0, "mlp": None, "flow": None}


@pytest.mark.parametrize(
    ("init", "gamma"),
    [
        ({"law": "gamma", "gamma": 0.5}, 0.5),
        ({"law": "gamma", "gamma": 0.75}, 0.75),
        ({"law": "gamma", "gamma": 1.0}, 1.0),
        ({"law": "normal"}, 0.0),
        ({"law": "kaiming"}, 0.5),
    ],
)
def test_gamma_is_recovered_over_widths_64_to_1024(init, gamma):
    _, rows = over_widths(model(), InitConfig.model_validate(init), [64, 128, 256, 512, 1024], BATCH, seeds=2)
    assert [row.role for row in rows] == [
        "embed", "attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down", "head",
    ]  # fmt: skip
    for row in rows:
        assert row.gamma == pytest.approx(gamma, abs=0.01), row
        assert row.stderr < 0.01


def test_gamma_of_each_role_is_its_own():
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"mlp": 0.6, "embed": 0.8}})
    rows: dict[str, GammaRow] = {row.role: row for row in over_widths(model(), init, [64, 256], BATCH, 4)[1]}
    for role, gamma in {"embed": 0.8, "attn.o": 1.0, "mlp.down": 0.6}.items():
        assert rows[role].gamma == pytest.approx(gamma, abs=0.02)
    assert rows["mlp.down"].stds == pytest.approx((128**-0.6, 512**-0.6), rel=0.02)  # d_in is d_ff


@pytest.mark.parametrize(
    ("widths", "seeds", "message"),
    [([64, 96], 16, "multiples of the smallest, not 64, 96"), ([64, 128], 1, "at least two, got 1")],
)
def test_wrong_input_is_told(widths, seeds, message):
    with pytest.raises(InputError, match=message):
        measured(InitConfig(law="gamma"), widths, seeds=seeds)


def test_weights_that_are_copied_have_one_width():
    with pytest.raises(InputError, match="widths: law 'reuse' copies weights"):
        measured(InitConfig.model_validate({"law": "reuse", "checkpoint": "nowhere"}), [64, 128])


def test_tokens_of_a_large_vocabulary_need_no_large_table():
    ids, init = BATCH.ids[:1], InitConfig(law="gamma")
    few, many, other = (
        over_widths(model(), init, [64, 128], batch(x), seeds=2) for x in (ids, 10**12 + 3 * ids, ids.flip(1))
    )
    assert few == many
    assert few != other


def test_a_law_that_looks_at_the_vocabulary_sees_all_of_it():
    """Xavier's std of a table of 100 000 rows falls no more with its width than 1 %; that of 256 rows, by a third."""
    slopes, gammas = over_widths(model("model.vocab_size=100000"), InitConfig(law="xavier"), [64, 256], BATCH, seeds=2)
    assert {row.role: row.gamma for row in gammas}["embed"] == pytest.approx(0, abs=0.01)
    assert slopes[0].expected == pytest.approx(0, abs=0.01)


def test_windows_are_short_and_padding_is_not_counted():
    ids = torch.randint(256, (3, 70), generator=torch.Generator().manual_seed(1))
    doc_ids = torch.zeros_like(ids)
    doc_ids[0, 50:] = -1
    cut = torch.stack([ids[0, :32], ids[0, 32:64], ids[1, :32], ids[1, 32:64]])
    kept = torch.zeros_like(cut)
    kept[1, 18:] = -1
    whole, by_hand = (
        over_widths(model(), InitConfig(law="gamma"), [32, 64], batch(*x), seeds=2)
        for x in ((ids, doc_ids), (cut, kept))
    )
    assert whole == by_hand
    assert whole[0][0].tokens == 4 * 32 - 14
    cut[1, 18:] = cut[0, 0]  # of the padding neither branches nor flow know anything
    padded = over_widths(model(), InitConfig(law="gamma"), [32, 64], batch(cut, kept), seeds=2)[0]
    cut[1, 18:] = cut[0, 1]
    assert padded == over_widths(model(), InitConfig(law="gamma"), [32, 64], batch(cut, kept), seeds=2)[0]
    shorter = over_widths(model(), InitConfig(law="gamma"), [32, 64], batch(ids[:, :20]), seeds=2)[0]
    assert shorter[0].tokens == 60


def test_attention_stays_in_its_document():
    """One document a token: nothing is averaged, and attention is larger."""
    apart = batch(BATCH.ids, torch.arange(32).expand(2, 32))
    one, each = (over_widths(model(), InitConfig(law="gamma"), [32, 64], x, seeds=2)[0][0] for x in (BATCH, apart))
    assert min(each.ratios) > 2 * max(one.ratios)
