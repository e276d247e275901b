"""Three maps with derivatives by hand: fewer passes over memory than autograd's own, which is what they cost on a CPU.

``benchmarks/model_passes.py`` measures each against the plain form, which the tests compare them with. All return the
type of their input, norm and rotation compute in fp32 or better; none can be differentiated twice. Where there is no
gradient they are called as functions: the price of a map of autograd's is felt when it maps one token.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class RMSNormed(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension D of x [..., D]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out, scale = _normed(x, weight, eps)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore
        x, weight, scale = ctx.saved_tensors
        unit, wide = x * scale, grad.to(scale.dtype)
        by_weight = wide * unit  # [..., D]
        along = torch.mv(by_weight.flatten(0, -2), weight.to(scale.dtype)).div_(x.shape[-1])
        grad_x = (wide * weight).addcmul_(unit, along.view_as(scale), value=-1).mul_(scale)
        return grad_x.to(x.dtype), by_weight.flatten(0, -2).sum(0).to(weight.dtype), None


def rms_normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNormed, or its value alone where no gradient is taken."""
    return RMSNormed.apply(x, weight, eps) if torch.is_grad_enabled() else _normed(x, weight, eps)[0]  # pyright: ignore


def _normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The result, and the factor [..., 1] of each vector."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (wide * scale).mul_(weight).to(x.dtype), scale


class Rotated(torch.autograd.Function):
    """Pairs (i, i + K/2) of x [..., K] turned by angles; the derivative of a turn is the turn back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, -sin), None, None


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotated, or its value alone where no gradient is taken."""
    return Rotated.apply(x, cos, sin) if torch.is_grad_enabled() else _turn(x, cos, sin)  # pyright: ignore


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    out = torch.empty_like(wide, memory_format=torch.contiguous_format)
    (a, b), (turned_a, turned_b) = wide.chunk(2, dim=-1), out.chunk(2, dim=-1)
    torch.mul(a, cos, out=turned_a).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=turned_b).addcmul_(a, sin)
    return out.to(x.dtype)


class SwiGLUGated(torch.autograd.Function):
    """silu(gate) * up of gate_up [..., 2F], the two halves of one product's result."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return _gated(gate_up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.empty_like(gate_up)
        grad_gate, grad_up = out.chunk(2, dim=-1)
        torch.mul(F.silu(gate), grad, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=grad_gate)
        return out


def swiglu_gated(gate_up: Tensor) -> Tensor:
    """SwiGLUGated, or its value alone where no gradient is taken."""
    return SwiGLUGated.apply(gate_up) if torch.is_grad_enabled() else _gated(gate_up)  # pyright: ignore


def _gated(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
