"""How a branch changes with the width, from the law alone, and the family of decoders that it is told for."""

import numpy as np
import pytest

from seedbed.analysis.scaling import at_width, branch_scaling, family_of
from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.laws import LAWS, Distribution
from seedbed.model import Decoder


def model(*overrides: str) -> ModelConfig:
    shape = ["model.vocab_size=300", "model.d_model=64", "model.n_layers=3", "model.attention.n_heads=2"]
    return Config.load(None, [*shape, "model.ffn.d_ff=128", *overrides]).model


def exponents(init: dict, *overrides: str) -> dict[str, float]:
    found = branch_scaling(model(*overrides), InitConfig.model_validate(init))
    return {branch: scaling.exponent for branch, scaling in found.items()}


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
def test_exponents_are_read_from_what_the_law_plans(init, attention, mlp):
    assert exponents(init) == pytest.approx({"attention": attention, "mlp": mlp}, abs=1e-6)


@pytest.mark.parametrize(("pos", "gamma_e"), [(0.5, 0.5), (1.5, 1.0)])
def test_the_larger_table_decides_where_positions_are_learned(pos, gamma_e):
    init = InitConfig.model_validate({"law": "gamma", "gamma": 1.0, "by_role": {"pos": pos}})
    found = branch_scaling(model("model.position=learned"), init)
    assert found["attention"].exponent == pytest.approx(gamma_e - 1)
    assert found["mlp"].exponent == pytest.approx(gamma_e - 1.5)
    assert found["attention"].balancing == pytest.approx(0.5 + gamma_e / 2)
    assert found["mlp"].balancing == pytest.approx(0.5 + gamma_e / 3)


def test_no_power_of_the_width_has_no_exponent(monkeypatch):
    def odd(fact):
        return Distribution("normal", 1 / (fact.d_in + 100 * fact.role.startswith("mlp")))

    monkeypatch.setitem(LAWS, "odd", odd)
    assert exponents({"law": "odd"}) == {"attention": 0.0}
    monkeypatch.setitem(LAWS, "odd", lambda fact: Distribution("normal", 1 / (fact.d_in + 100 * (fact.role == "pos"))))
    assert exponents({"law": "odd"}, "model.position=learned") == {}


def test_norms_behind_the_branches_leave_none():
    assert exponents({"law": "gamma", "gamma": 1.0}, "model.norm_placement=post") == {}


def test_copied_weights_have_none():
    with np.errstate(all="raise"):  # nor is a power of their std sought
        assert exponents({"law": "reuse", "checkpoint": "nowhere"}) == {}


def test_the_widths_are_those_that_are_asked_for():
    """Xavier's std of 300 rows falls with the width where that is large beside them."""
    init = InitConfig(law="xavier")
    narrow, wide = (branch_scaling(model(), init, widths)["mlp"].exponent for widths in ([2, 4], [4096, 8192]))
    assert narrow < 0.02
    assert wide > 0.45


def test_a_variant_differs_in_width_and_depth_alone():
    config = model("model.d_model=128", "model.ffn.d_ff=384", "model.attention.n_heads=8",
                   "model.attention.n_kv_heads=2", "model.norm_eps=1e-6", "model.attention.scale=0.3")  # fmt: skip
    wide = at_width(config, 192, 64)
    assert (wide.d_model, wide.ffn.d_ff, wide.n_layers) == (192, 576, 2)
    assert (wide.attention.n_heads, wide.attention.n_kv_heads, wide.attention.head_dim) == (12, 3, 16)
    assert (wide.norm_eps, wide.ffn.kind, wide.attention.scale) == (1e-6, "swiglu", 0.3)
    assert at_width(config, 128, 64) == at_width(config, 128, 128) == config.model_copy(update={"n_layers": 2})


@pytest.mark.parametrize(
    ("recipe", "heads"),
    [("astrai-1.2b", (6, 1, 10, 288)), ("dense-12x768", (1, 1, 64, 171)), ("gpt2-medium", (1, 1, 64, 256))],
)
def test_proportions_are_rounded_at_the_smallest_width_alone(recipe, heads):
    config = Config.load(f"recipes/{recipe}.yaml").model
    n_heads, n_kv_heads, head_dim, d_ff = heads
    for growth in (1, 3, 8):
        wide = at_width(config, 64 * growth, 64)
        a = wide.attention
        assert (wide.d_model, wide.ffn.d_ff) == (64 * growth, d_ff * growth)
        assert (a.n_heads, a.n_kv_heads, a.head_dim) == (n_heads * growth, n_kv_heads * growth, head_dim)
        parameter_facts(Decoder(wide.model_copy(update={"vocab_size": 8})))


@pytest.mark.parametrize("widths", [(64,), (64, 64), (64, 96), (0, 64), (-64, 64), ()])
def test_widths_that_do_not_compare_are_refused(widths):
    with pytest.raises(InputError, match=r"widths: give at least two, all of them multiples of the smallest, not \S"):
        family_of(widths)


def test_a_family_ascends():
    assert family_of((128, 64, 192, 64)) == [64, 128, 192]
