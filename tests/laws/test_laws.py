"""Every law against the number that science.md section 1 gives for it."""

import math

import pytest

from seedbed.facts.fact import ParameterFact
from seedbed.laws import LAWS, distribution


def fact(role="attn.q", d_in=2048, d_out=2048, n_layers=24, writes_residual=False) -> ParameterFact:
    return ParameterFact("x", role, (d_out, d_in), d_in, d_out, 0, n_layers, writes_residual)


@pytest.mark.parametrize(("gamma", "variance"), [(0.5, 4.88e-4), (1.0, 2.38e-7)])
def test_gamma_at_the_width_of_s0(gamma, variance):
    law = distribution(fact(), "gamma", {"gamma": gamma})
    assert law.kind == "normal"
    assert law.std**2 == pytest.approx(variance, rel=2e-3)
    assert law.std == 2048**-gamma


def test_gpt2_scales_what_writes_to_the_stream():
    plain = distribution(fact(), "gpt2", {"std": 0.02})
    scaled = distribution(fact("attn.o", writes_residual=True), "gpt2", {"std": 0.02})
    assert plain.std == 0.02
    assert scaled.std == pytest.approx(0.02 / math.sqrt(48))
    assert (plain.std / scaled.std) ** 2 == pytest.approx(48)  # S1's factor a block
    high = distribution(fact("mlp.down", n_layers=2, writes_residual=True), "gpt2", {"std": 0.08})
    assert high.std == pytest.approx(0.04)  # S2's high std


def test_normal_scales_nothing():
    assert distribution(fact("attn.o", writes_residual=True), "normal", {"std": 0.02}).std == 0.02


def test_both_kaimings_of_s1():
    torch_default = distribution(fact(d_in=1536), "kaiming", {"variant": "torch"})
    he = distribution(fact(d_in=1536), "kaiming", {"variant": "he"})
    assert (torch_default.kind, round(torch_default.std, 4)) == ("uniform", 0.0147)
    assert (he.kind, round(he.std, 3)) == ("normal", 0.036)


def test_xavier_uses_both_sides():
    law = distribution(fact(d_in=100, d_out=300), "xavier", {"gain": 2.0, "shape": "normal"})
    assert law.std == pytest.approx(2 * math.sqrt(2 / 400))
    assert law.kind == "normal"


@pytest.mark.parametrize("law", LAWS)
def test_norms_and_biases_are_the_same_under_every_law(law):
    assert [distribution(fact(role), law, {}).value for role in ("norm", "norm.bias", "bias")] == [1.0, 0.0, 0.0]
    assert distribution(fact("norm"), law, {}).kind == "constant"
