"""Rotary position embedding."""

import torch
from torch import Tensor

from seedbed.model.passes import Rotated


def rotations(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [..., T, 1, head_dim/2] fp32, of positions [..., T].

    Angles are made in fp32 from integer positions, whatever the model's precision, and anew each time: a table kept as
    a buffer would have to survive meta construction, casting and sharding.
    """
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions.float()[..., None] * theta**-exponent  # [..., T, K/2]
    return angles.cos()[..., None, :], angles.sin()[..., None, :]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + K/2) of x [B, T, H, K] by the angles, in fp32 or better; the halves layout of Llama."""
    return Rotated.apply(x, cos, sin)  # pyright: ignore[reportReturnType]
