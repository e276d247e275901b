"""gamma_: one tensor, as the functions of torch.nn.init."""

import math

import pytest
import torch
from torch import nn

from seedbed import gamma_
from seedbed.errors import InputError


@pytest.mark.parametrize(
    ("shape", "d_in", "expected"),
    [((300, 64), None, 64), ((100, 3, 4, 4), None, 48), ((300, 64), 16, 16), ((4000,), 100, 100)],
)
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_std_is_d_in_to_the_minus_gamma(shape, d_in, expected, gamma):
    tensor = torch.empty(shape)
    target = expected**-gamma
    assert gamma_(tensor, gamma, d_in, torch.Generator().manual_seed(1)) is tensor
    assert abs(tensor.std().item() - target) < 4 * target / math.sqrt(2 * tensor.numel())


def test_it_is_what_torch_draws_from_that_generator():
    one, other = (torch.Generator().manual_seed(7) for _ in range(2))
    expected = nn.init.normal_(torch.empty(8, 16), std=16**-1.0, generator=other)
    assert torch.equal(gamma_(torch.empty(8, 16), generator=one), expected)
    torch.manual_seed(3)
    expected = nn.init.normal_(torch.empty(8, 16), std=1 / 16)
    torch.manual_seed(3)
    assert torch.equal(gamma_(torch.empty(8, 16)), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_of_every_precision(dtype):
    parameter = nn.Parameter(torch.empty(64, 64, dtype=dtype))
    assert gamma_(parameter, 0.5) is parameter
    assert parameter.requires_grad
    assert parameter.grad_fn is None
    assert parameter.std().item() == pytest.approx(1 / 8, rel=0.05)


def test_on_the_meta_device_it_does_nothing():
    tensor = torch.empty(3, 4, device="meta")
    assert gamma_(tensor, generator=torch.Generator()) is tensor


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4,), {}, "give d_in="),
        ((), {}, "give d_in="),
        ((4, 4), {"gamma": math.nan}, "gamma=nan"),
        ((4, 4), {"gamma": math.inf}, "gamma=inf"),
        ((4, 4), {"gamma": math.inf, "d_in": 1}, "gamma=inf"),
        ((4, 4), {"gamma": "1"}, "gamma='1'"),
        ((4, 4), {"gamma": 1000.0}, "no scale that fp32"),
        ((4, 4), {"gamma": -1000.0}, "no scale that fp32"),
        ((4, 4), {"d_in": 0}, "d_in is a number"),
        ((4, 4), {"d_in": 2.0}, "d_in is a number"),
        ((4, 4), {"d_in": True}, "d_in is a number"),
    ],
)
def test_wrong_input_leaves_the_tensor_untouched(shape, options, message):
    tensor = torch.full(shape, 3.0)
    with pytest.raises(InputError, match=message):
        gamma_(tensor, **options)
    assert tensor.eq(3).all()


def test_integers_are_refused():
    with pytest.raises(InputError, match="torch.int64 cannot hold the draw"):
        gamma_(torch.ones(3, 3, dtype=torch.int64))
