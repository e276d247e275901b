"""From how a parameter is stored to the widths of the map that it is."""

import math
from typing import NamedTuple

from torch import Tensor, nn

from seedbed.facts.fact import EMBEDDING_ROLES, VECTOR_ROLES
from seedbed.facts.patterns import TRANSPOSED

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
LOOKUPS = tuple(role for role in EMBEDDING_ROLES if role != "patch")


class Geometry(NamedTuple):
    """Fields of the same names of a ParameterFact."""

    shape: tuple[int, ...]
    d_in: int
    d_out: int
    transposed: bool = False


def is_conv1d(owner: nn.Module) -> bool:
    """Whether it is the Conv1D of Transformers: a linear map that is stored as (d_in, d_out)."""
    return any(base.__name__ == "Conv1D" for base in type(owner).__mro__)


def geometry(name: str, role: str, owner: nn.Module, shape: tuple[int, ...]) -> Geometry:
    """Of the parameter ``name`` of the module ``owner``, stored as ``shape``; that has two dimensions at least, unless
    the role is a vector's or a lookup table's.

    A convolution's d_in is its fan-in. Of a transposed one it is what an output element sums on average,
    channels/groups * kernel/stride (choice: the formula for convolutions would give the fan-out); its shape stays as
    it is stored. A stack of experts is (experts, d_out, d_in).
    """
    if role in VECTOR_ROLES:
        return Geometry(shape, 1, math.prod(shape))
    if role in LOOKUPS:  # any number of vectors as wide as the model
        return Geometry(shape, shape[-1], math.prod(shape[:-1]))
    if isinstance(owner, TRANSPOSED_CONVOLUTIONS):
        taps = owner.in_channels / owner.groups * math.prod(owner.kernel_size) / math.prod(owner.stride)
        return Geometry(shape, max(round(taps), 1), owner.out_channels)
    if isinstance(owner, CONVOLUTIONS):
        return Geometry(shape, math.prod(shape[1:]), shape[0])
    if is_conv1d(owner) or TRANSPOSED.search(name):
        return Geometry(shape[::-1], *shape, transposed=True)
    if is_expert_stack(role, shape):
        d_in, d_out = shape[1:] if _input_first(owner) else shape[:0:-1]
        return Geometry((shape[0], d_out, d_in), d_in, d_out, transposed=_input_first(owner))
    return Geometry(shape, math.prod(shape[1:]), shape[0])


def _input_first(experts: nn.Module) -> bool:
    """Whether the maps of ``experts`` are stored as (experts, d_in, d_out): a gate and up map has twice as many columns
    then as the down map has rows, and without a gate the module must say it (``is_transposed``)."""
    up, down = getattr(experts, "gate_up_proj", None), getattr(experts, "down_proj", None)
    if isinstance(up, Tensor) and isinstance(down, Tensor):
        return up.shape[2] == 2 * down.shape[1]
    return getattr(experts, "is_transposed", False)


def is_expert_stack(role: str, shape: tuple[int, ...]) -> bool:
    """Whether a feed-forward map that is no convolution is one for each of several experts."""
    return role.startswith("mlp.") and len(shape) == 3
