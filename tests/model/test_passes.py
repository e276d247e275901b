"""The hand-made derivatives against autograd's, in double precision and in low precision."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seedbed.model.passes import RMSNormed, Rotated, SwiGLUGated, rms_normed, rotated, swiglu_gated
from seedbed.model.rope import rotations


def plain_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def plain_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pairs(dtype: torch.dtype):
    turn = rotations(torch.arange(5)[None], 8, 1e4)
    x, weight = draw(2, 5, 3, 8, dtype=dtype), draw(8, seed=1, dtype=dtype)
    return {
        "norm": (lambda x, w: RMSNormed.apply(x, w, 0.3), lambda x, w: F.rms_norm(x, (8,), w, 0.3), (x, weight)),
        "rotation": (lambda x: Rotated.apply(x, *turn), lambda x: plain_rotation(x, *turn), (x,)),
        "swiglu": (SwiGLUGated.apply, plain_swiglu, (x,)),
    }


@pytest.mark.parametrize("name", ["norm", "rotation", "swiglu"])
def test_value_and_gradients_equal_the_plain_form(name):
    ours, plain, inputs = pairs(torch.float64)[name]
    results = []
    for function in (ours, plain):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = function(*leaves)
        (out * draw(*out.shape, seed=2)).sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["norm", "rotation", "swiglu"])
def test_low_precision_comes_out_as_it_went_in_and_as_exact(name):
    ours, plain, inputs = pairs(torch.bfloat16)[name]
    out = ours(*(x.clone().requires_grad_() for x in inputs))
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    exact = plain(*(x.double() for x in inputs))
    torch.testing.assert_close(out.double(), exact, rtol=2**-7, atol=2**-8)


def test_a_tiny_epsilon_survives_tiny_states():
    """d = 2048, gamma = 1: sigma^2 = 2.4e-7; at eps = 1e-12 the norm still brings it to 1 (S0 section 2.1)."""
    x = draw(4, 2048, dtype=torch.float32) / 2048
    out = RMSNormed.apply(x, torch.ones(2048), 1e-12)
    torch.testing.assert_close(out.square().mean(-1), torch.ones(4), rtol=1e-4, atol=0)
    masked = RMSNormed.apply(x, torch.ones(2048), 1e-5)
    assert masked.square().mean() < 0.03  # 98 % of the denominator is epsilon


@pytest.mark.parametrize("kind", ["norm", "rotation", "swiglu"])
def test_without_gradients_the_value_is_the_same_bit_for_bit(kind):
    turn = rotations(torch.arange(5)[None], 8, 1e4)
    call = {
        "norm": lambda x: rms_normed(x, draw(8, dtype=torch.float32), 0.3),
        "rotation": lambda x: rotated(x, *turn),
        "swiglu": swiglu_gated,
    }[kind]
    x = draw(2, 5, 3, 8, dtype=torch.float32).requires_grad_()
    recorded = call(x)
    assert recorded.grad_fn is not None
    with torch.no_grad():
        assert torch.equal(call(x), recorded)
