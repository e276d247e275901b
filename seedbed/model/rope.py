"""Rotary position embedding."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seedbed.model.passes import rotated

if TYPE_CHECKING:
    from seedbed.config.model import RopeScaling


def rotations(
    positions: Tensor, head_dim: int, theta: float, scaling: "RopeScaling | None" = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [..., T, 1, head_dim/2] fp32, of positions [..., T].

    Angles are made in fp32 from integer positions, whatever the model's precision, and anew each time: a table kept as
    a buffer would have to survive meta construction, casting and sharding.
    """
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    frequencies = 1 / theta**exponent  # [K/2], radians a token; in this order equal to Transformers' to the bit
    if scaling is not None:
        frequencies = stretched(frequencies, scaling)
    angles = positions.float()[..., None] * frequencies  # [..., T, K/2]
    return angles.cos()[..., None, :], angles.sin()[..., None, :]


def stretched(frequencies: Tensor, scaling: "RopeScaling") -> Tensor:
    """``frequencies`` [K/2] fp32 as Llama 3 scales them for longer sequences: fast rotations stay, slow ones are
    divided by ``factor``, and those between are interpolated by their turns in the original length."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    lengths = 2 * math.pi / frequencies  # tokens of a full turn
    share = (scaling.original_max_seq_len / lengths - low) / (high - low)  # 0 at the slow end, 1 at the fast one
    between = (1 - share) * frequencies / scaling.factor + share * frequencies
    slow = lengths > scaling.original_max_seq_len / low
    fast = lengths < scaling.original_max_seq_len / high
    return torch.where(slow, frequencies / scaling.factor, torch.where(fast, frequencies, between))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (i, i + K/2) of x [B, T, H, K] by the angles, in fp32 or better; the halves layout of Llama."""
    return rotated(x, cos, sin)
