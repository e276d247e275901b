"""A claim is made of the optimizer that it is about."""

from typing import get_args

from seedbed.config.optim import OptimConfig
from seedbed.report.dynamics_claims import CLAIMS, claims


def test_every_optimizer_has_a_claim():
    assert set(CLAIMS) == set(get_args(OptimConfig.model_fields["name"].annotation))


def test_runs_are_named_where_optimizers_differ():
    assert claims({"a": "muon", "b": "muon"}) == [CLAIMS["muon"]]
    found = claims({"a": "muon", "b": "adamw", "c": "muon"})
    assert found == [f"a, c: {CLAIMS['muon']}", f"b: {CLAIMS['adamw']}"]
    assert "climbs back" in CLAIMS["adamw"]
    assert "hide the condensation" in CLAIMS["muon"]
