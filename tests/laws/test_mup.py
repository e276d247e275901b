"""µP's distributions over widths, at which every other dimension grows in proportion."""

import math

import pytest

from seedbed.facts.fact import ParameterFact
from seedbed.laws import ZERO, distribution

OPTIONS = {"base_width": 64, "std": 0.02}


def fact(role: str, d_in: int, d_out: int = 64) -> ParameterFact:
    return ParameterFact("x", role, (d_out, d_in), d_in, d_out, 0, 2, role in ("attn.o", "mlp.down"))


@pytest.mark.parametrize("role", ["attn.k", "attn.v", "attn.o", "attn.gate", "attn.kv_up", "mlp.up", "mlp.down"])
@pytest.mark.parametrize("width", [32, 64, 512])
def test_hidden_matrices_have_std_at_the_base_width_and_fall_as_its_root(role, width):
    law = distribution(fact(role, width), "mup", OPTIONS)
    assert (law.kind, law.std) == ("normal", pytest.approx(0.02 * math.sqrt(64 / width)))


def test_a_down_projection_sums_over_more():
    assert distribution(fact("mlp.down", 4 * 64), "mup", OPTIONS).std == pytest.approx(0.01)


@pytest.mark.parametrize("role", ["embed", "pos", "token", "patch"])
def test_embeddings_do_not_know_the_width(role):
    assert {distribution(fact(role, width), "mup", OPTIONS).std for width in (32, 64, 512)} == {0.02}


@pytest.mark.parametrize("role", ["head", "attn.q"])
def test_head_and_queries_are_zero(role):
    assert distribution(fact(role, 512), "mup", OPTIONS) == ZERO


def test_a_router_falls_as_the_width():
    assert distribution(fact("moe.router", 64), "mup", OPTIONS).std == 0.02
    assert distribution(fact("moe.router", 256), "mup", OPTIONS).std == 0.005
