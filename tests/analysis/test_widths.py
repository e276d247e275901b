"""Slopes over widths against theory (science section 2), each branch by itself over 16 seeds, epsilon 1e-12."""

from functools import cache

import numpy as np
import pytest
import torch

from seedbed.analysis.widths import GammaRow, SlopeRow, _fit, at_width, fitted_gamma, width_slopes
from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.errors import InputError
from seedbed.laws import LAWS, Distribution

MODELS = {
    "swiglu, gated": ["model.attention.gate=elementwise", "model.ffn.kind=swiglu"],
    "two-map": ["model.ffn.kind=gelu"],
}


def model(*overrides: str) -> ModelConfig:
    """One layer, d_ff/d = 2, heads of 32."""
    shape = ["model.vocab_size=300", "model.d_model=64", "model.n_layers=1", "model.attention.n_heads=2"]
    return Config.load(None, [*shape, "model.ffn.d_ff=128", *overrides]).model


@cache
def slopes(name: str, gamma: float, widest: int = 512, law: str = "gamma") -> dict[str, SlopeRow]:
    widths = [width for width in (64, 128, 256, 512, 1024) if width <= widest]
    init = InitConfig.model_validate({"law": law, "gamma": gamma})
    return {row.branch: row for row in width_slopes(model(*MODELS[name]), init, widths)}


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
    attention = width_slopes(model(), init, [64, 128, 256])[0]
    assert attention.expected == pytest.approx(0)
    assert attention.slope == pytest.approx(0, abs=0.05)


def test_the_models_own_epsilon_is_measured():
    """It masks the embedding more the wider the model is: 4 % at 64 and 72 % at 512."""
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0})
    masked = {row.branch: row.slope for row in width_slopes(model("model.norm_eps=1e-5"), init, [64, 512], seeds=4)}
    assert masked["attention"] < slopes("two-map", 1.0)["attention"].slope - 0.15


def test_a_row_is_one_story():
    row = slopes("two-map", 0.75)["attention"]
    assert row.widths == (64, 128, 256, 512)
    assert np.polyfit(np.log(row.widths), np.log(row.ratios), 1)[0] == pytest.approx(row.slope)


def test_standard_error_is_that_of_the_mean_over_seeds():
    two_seeds = np.array([[0.0, 0.0], [1.0, 3.0]])  # slopes 1 and 3
    assert _fit(np.array([0.0, 1.0]), two_seeds) == pytest.approx((2.0, 1.0))


def expected(init: InitConfig, *overrides: str) -> dict[str, float | None]:
    return {row.branch: row.expected for row in width_slopes(model(*overrides), init, [32, 64, 128], seeds=2)}


@pytest.mark.parametrize(
    ("init", "attention", "mlp"),
    [
        ({"law": "gpt2"}, 1.0, 1.5),  # one std at every width: gamma 0
        ({"law": "kaiming"}, 0.5, 0.5),
        ({"law": "gamma", "gamma": 0.5, "by_role": {"mlp.down": 1.0}}, 0.5, 0.0),
        ({"law": "gamma", "gamma": 0.5, "by_role": {"embed": 1.0, "attn": 1.0}}, 0.0, 1.0),
        ({"law": "gamma", "gamma": 1.0, "by_role": {"mlp": 5 / 6}}, 0.0, 0.0),
    ],
)
def test_theory_is_read_from_what_the_law_plans(init, attention, mlp):
    told = expected(InitConfig.model_validate(init))
    assert told == pytest.approx({"attention": attention, "mlp": mlp, "flow": max(attention, mlp)}, abs=1e-6)


def test_the_larger_table_decides_where_positions_are_learned():
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"pos": 0.5}})
    assert expected(init, "model.position=learned")["attention"] == pytest.approx(-0.5)


def test_no_power_of_the_width_has_no_expected_slope(monkeypatch):
    monkeypatch.setitem(
        LAWS, "odd", lambda fact: Distribution("normal", 1 / (fact.d_in + 100 * fact.role.startswith("mlp")))
    )
    assert expected(InitConfig(law="odd")) == {"attention": 0.0, "mlp": None, "flow": None}


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
    rows = fitted_gamma(model(), InitConfig.model_validate(init), [64, 128, 256, 512, 1024], seeds=2)
    assert [row.role for row in rows] == [
        "embed", "attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down", "head",
    ]  # fmt: skip
    for row in rows:
        assert row.gamma == pytest.approx(gamma, abs=0.01), row
        assert row.stderr < 0.01


def test_gamma_of_each_role_is_its_own():
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"mlp": 0.6, "embed": 0.8}})
    rows: dict[str, GammaRow] = {row.role: row for row in fitted_gamma(model(), init, [64, 256])}
    for role, gamma in {"embed": 0.8, "attn.o": 1.0, "mlp.down": 0.6}.items():
        assert rows[role].gamma == pytest.approx(gamma, abs=0.02)
    assert rows["mlp.down"].stds == pytest.approx((128**-0.6, 512**-0.6), rel=0.02)  # d_in is d_ff


def test_a_variant_differs_in_width_alone():
    config = model("model.d_model=128", "model.ffn.d_ff=384", "model.attention.n_heads=8",
                   "model.attention.n_kv_heads=2", "model.norm_eps=1e-6")  # fmt: skip
    wide = at_width(config, 192)
    assert (wide.d_model, wide.ffn.d_ff) == (192, 576)
    assert (wide.attention.n_heads, wide.attention.n_kv_heads, wide.attention.head_dim) == (12, 3, 16)
    assert (wide.norm_eps, wide.n_layers, wide.ffn.kind) == (1e-6, 1, "swiglu")
    assert at_width(config, 128) == config


@pytest.mark.parametrize(
    ("recipe", "step"),
    [("dense-12x768", 192), ("astrai-1.2b", 384)],  # a third of 64 features of d_ff = 2048; 4 heads of keys and values
)
def test_nothing_is_rounded(recipe, step):
    config = Config.load(f"recipes/{recipe}.yaml").model
    narrow = at_width(config, step)
    assert narrow.ffn.d_ff / narrow.d_model == config.ffn.d_ff / config.d_model
    for width in (64, step // 2, step + 32):
        with pytest.raises(InputError, match=f"at multiples of {step} only"):
            at_width(config, width)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": [64, 96, 100]}, "widths: 100 does not fit: .* at multiples of 32 only; try 32,64,128"),
        ({"widths": [64, 0]}, "0 does not fit"),
        ({"widths": [64, -64]}, "-64 does not fit"),
        ({"widths": [64, 64]}, "two different"),
        ({"widths": []}, "two different"),
        ({"widths": [64, 128], "seeds": 1}, "at least two, got 1"),
    ],
)
def test_wrong_input_is_told(arguments, message):
    with pytest.raises(InputError, match=message):
        width_slopes(model(), InitConfig(law="gamma"), **arguments)


def test_tokens_of_a_large_vocabulary_need_no_large_table():
    ids = torch.randint(7, (1, 40), generator=torch.Generator().manual_seed(0))
    init = InitConfig(law="gamma")
    numbered, same = (width_slopes(model(), init, [64, 128], seeds=2, ids=x) for x in (ids, 10**12 + 3 * ids))
    assert numbered == same
    assert numbered != width_slopes(model(), init, [64, 128], seeds=2, ids=ids.flip(1))
