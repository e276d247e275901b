import math

import pytest
import torch

from seedbed.config.model import ModelConfig
from seedbed.facts.fact import ParameterFact, in_order
from seedbed.facts.table import parameter_facts, part_of
from seedbed.measure.gradients import gradient_rows
from seedbed.model.decoder import Decoder


def fact(role: str, shape: tuple[int, ...] = (2, 2)) -> ParameterFact:
    return ParameterFact(f"a.{role}", role, shape, d_in=2, d_out=2)


def test_one_role_by_hand():
    first = (fact("mlp.up"), torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    second = (fact("mlp.up", (1, 2)), torch.tensor([[12.0, 0.0]]), torch.tensor([[4.0, 4.0]]))
    (row,) = gradient_rows([first, second])
    assert row.role == "mlp.up"
    assert row.norm == pytest.approx(6)  # sqrt(4 + 32)
    assert row.rms == pytest.approx(math.sqrt(36 / 6))
    assert row.relative == pytest.approx(6 / 13)


def test_every_part_of_a_model_counts_once_in_the_order_of_roles():
    options = {"n_heads": 4, "n_kv_heads": 2, "gate": "headwise", "qk_norm": "head"}
    config = ModelConfig.model_validate({"vocab_size": 20, "d_model": 16, "n_layers": 2, "attention": options})
    model = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    model(torch.randint(20, (2, 8), generator=generator)).square().mean().backward()
    parameters = dict(model.named_parameters())
    gradients = {name: parameter.grad for name, parameter in parameters.items()}
    rows = gradient_rows(
        (part, part_of(parameters[fact.name], part), part_of(gradients[fact.name], part))
        for fact in parameter_facts(model)
        for part in fact.parts()
    )
    assert [row.role for row in rows] == in_order(row.role for row in rows)
    assert {row.role for row in rows} >= {"embed", "attn.q", "attn.k", "attn.v", "attn.gate", "mlp.gate", "norm"}
    total = sum(float(gradient.square().sum()) for gradient in gradients.values())
    assert sum(row.norm**2 for row in rows) == pytest.approx(total, rel=1e-5)
    q = torch.stack([layer.attn.qkv.weight.grad[:16] for layer in model.layers])
    of_q = next(row for row in rows if row.role == "attn.q")
    assert of_q.norm == pytest.approx(float(q.norm()), rel=1e-5)
    assert of_q.rms == pytest.approx(float(q.square().mean().sqrt()), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_gradients_are_reported(bad):
    good = (fact("head"), torch.ones(2, 2), torch.ones(2, 2))
    poisoned = (fact("head"), torch.ones(2, 2), torch.tensor([[1.0, bad], [0.0, 0.0]]))
    (row,) = gradient_rows([good, poisoned])
    for number in (row.norm, row.rms, row.relative):
        assert number == bad or math.isnan(number)


def test_huge_gradients_do_not_overflow():
    (row,) = gradient_rows([(fact("head"), torch.ones(2, 2), torch.full((2, 2), 1e30))])
    assert row.norm == pytest.approx(2e30)


def test_zero_weights_have_no_relative_scale():
    (row,) = gradient_rows([(fact("head"), torch.zeros(2, 2), torch.ones(2, 2))])
    assert row.relative is None
    assert row.norm == pytest.approx(2)


def test_a_part_without_gradient_is_named():
    with pytest.raises(ValueError, match="a.attn.o has no gradient"):
        gradient_rows([(fact("head"), torch.ones(2, 2), torch.ones(2, 2)), (fact("attn.o"), torch.ones(2, 2), None)])
