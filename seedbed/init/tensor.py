"""The law of one tensor, for code that initializes by ``torch.nn.init``."""

import math

import torch
from torch import Tensor

from seedbed.errors import InputError
from seedbed.init.plan import LARGEST_STD, SMALLEST_STD


def gamma_(
    tensor: Tensor, gamma: float = 1.0, d_in: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Fill ``tensor`` in place with N(0, d_in^(-2*gamma)) and return it, as the functions of ``torch.nn.init`` do.

    ``d_in`` is by default the product of all dimensions but the first: the input features of a linear map, the fan-in
    of a convolution, the width of an embedding table. Raises InputError where a vector comes without it, and on a scale
    that fp32 cannot draw; the tensor is then untouched. On the meta device it does nothing.
    """
    if d_in is None:
        if tensor.dim() < 2:
            raise InputError(f"gamma_: a tensor of shape {list(tensor.shape)} does not tell its d_in; give d_in=")
        d_in = math.prod(tensor.shape[1:])
    if isinstance(d_in, bool) or not isinstance(d_in, int) or d_in < 1:
        raise InputError(f"gamma_: d_in is a number of inputs, at least 1, not {d_in!r}")
    if not tensor.is_floating_point():
        raise InputError(f"gamma_: a tensor of {tensor.dtype} cannot hold the draw; it takes floating-point numbers")
    try:
        std = d_in**-gamma if math.isfinite(gamma) else math.nan
    except (ArithmeticError, TypeError):
        std = math.nan
    if not SMALLEST_STD <= std <= LARGEST_STD:
        raise InputError(f"gamma_: gamma={gamma!r} at d_in={d_in} gives no scale that fp32 can draw")
    with torch.no_grad():
        return tensor.normal_(0.0, std, generator=generator)
