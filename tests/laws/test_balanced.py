"""The law `balanced`: gamma_b = 1/2 + gamma_e/k in a branch of k maps (science sections 1 and 2)."""

import math

import pytest
import torch

from seedbed.config import Config
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.laws import distribution
from seedbed.model import Decoder


def facts(*overrides: str) -> dict[str, ParameterFact]:
    """By role; d = 64, d_ff = 192."""
    shape = ["model.vocab_size=300", "model.d_model=64", "model.n_layers=1", "model.ffn.d_ff=192"]
    with torch.device("meta"):
        decoder = Decoder(Config.load(None, [*shape, *overrides]).model)
    return {part.role: part for fact in parameter_facts(decoder) for part in fact.parts()}


def gamma_of(fact: ParameterFact, gamma_e: float) -> float:
    return -math.log(distribution(fact, "balanced", {"gamma": gamma_e}).std) / math.log(fact.d_in)


def test_at_gamma_1_it_is_1_for_attention_and_5_6_for_swiglu():
    swiglu, two_map = facts(), facts("model.ffn.kind=gelu")
    assert gamma_of(swiglu["attn.v"], 1.0) == pytest.approx(1.0)
    assert gamma_of(swiglu["mlp.down"], 1.0) == pytest.approx(5 / 6)  # d_in is 192 there
    assert gamma_of(two_map["mlp.down"], 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("gate", ["none", "elementwise", "headwise"])
@pytest.mark.parametrize(("kind", "k"), [("swiglu", 3), ("gelu", 2)])
@pytest.mark.parametrize("gamma_e", [0.5, 0.75, 1.0, 1.25])
def test_the_exponent_of_every_branch_is_zero(gate, kind, k, gamma_e):
    table = facts(f"model.attention.gate={gate}", f"model.ffn.kind={kind}")
    for series, maps in ((["attn.v", "attn.o"], 2), (["mlp.gate", "mlp.up", "mlp.down"][3 - k :], k)):
        assert all(table[role].maps == maps for role in series)
        assert sum(0.5 - gamma_of(table[role], gamma_e) for role in series) + gamma_e == pytest.approx(0)
    for role in ("attn.q", "attn.k", "attn.gate"):  # they take the gamma of their branch
        if role in table:
            assert gamma_of(table[role], gamma_e) == pytest.approx(0.5 + gamma_e / 2)
    for role in ("embed", "head"):
        assert gamma_of(table[role], gamma_e) == pytest.approx(gamma_e)


def test_scores_vanish_with_width_whatever_the_gamma_of_the_embedding():
    """q.k/sqrt(K) has std d^(1 - 2 gamma_b) = d^(-gamma_e): the scale of queries and keys decides no branch's size."""
    assert 1 - 2 * gamma_of(facts()["attn.q"], 0.75) == pytest.approx(-0.75)
