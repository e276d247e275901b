"""AdamW of weights in bf16: the arithmetic is that of fp32, rounded once a step."""

import pytest
import torch
from torch import nn

from seedbed.config.optim import OptimConfig
from seedbed.facts.table import parameter_facts
from seedbed.optim.groups import build_optimizers

OPTIM = OptimConfig(name="adamw", lr=1e-2, betas=(0.9, 0.999), weight_decay=0.1)


def built(dtype: torch.dtype, optim: OptimConfig = OPTIM):
    model = nn.Sequential()
    model.head = nn.Linear(16, 8, bias=False, dtype=dtype)
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).bfloat16())
    return model.head.weight, build_optimizers(model, parameter_facts(model), optim)


@pytest.mark.filterwarnings("ignore:1 parameter tensors")
def test_moments_and_arithmetic_are_fp32_and_a_step_rounds_once():
    low, optimizers = built(torch.bfloat16)
    exact, reference = built(torch.float32)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        low.grad = torch.randn(8, 16, generator=generator).bfloat16()
        exact.grad = low.grad.float()
        with torch.no_grad():
            exact.copy_(low)  # each step from the same weights
        optimizers.step()
        reference.step()
        assert torch.equal(low, exact.bfloat16())
    state, expected = optimizers.state_dict(), reference.state_dict()
    assert {value.dtype for value in state.values()} == {torch.float32}
    assert all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.filterwarnings("ignore:1 parameter tensors")
def test_the_rate_is_that_of_the_schedule_and_a_parameter_without_gradient_stays():
    low, optimizers = built(torch.bfloat16)
    before = low.detach().clone()
    optimizers.step()
    assert torch.equal(low, before)
    low.grad = torch.ones_like(low)
    optimizers.set_rate(0.0)
    optimizers.step()
    assert torch.equal(low, before)


@pytest.mark.filterwarnings("ignore:1 parameter tensors")
def test_decay_by_less_than_a_rounding_is_not_lost_on_top_of_the_update():
    """Muon: weights are decayed and updated in fp32 and rounded once, not twice."""
    from seedbed.optim.muon import Muon

    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    wide = weight.float()
    grad = torch.randn(8, 8, generator=torch.Generator().manual_seed(1)).bfloat16()
    results = []
    for start in (weight, wide):
        parameter = nn.Parameter(start.clone())
        parameter.grad = grad.to(start.dtype)
        Muon([parameter], lr=0.02, weight_decay=0.1).step()
        results.append(parameter.detach())
    assert torch.equal(results[0], results[1].bfloat16())
