"""Matrices in the layout in which oneDNN multiplies few rows fastest on a CPU: for the steps of a generation.

One copy of the weights beside the model's own. ``benchmarks/generation.py`` measures generation with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from seedbed.model import Decoder
from seedbed.model.norm import Linear

ROWS = 32
"""Up to so many rows at once; above, the usual product is as fast."""
BYTES = 2**32
"""Of weights; larger models are not copied (choice)."""
STEPS = 16
"""Tokens from which on a copy pays for itself (choice)."""

Product = Callable[[Tensor], Tensor]


def packs(module: Decoder, steps: int) -> bool:
    """Whether a copy serves a generation of ``steps`` tokens: on a CPU with oneDNN, in fp32, not too large.

    Its operators are PyTorch's own and undocumented (inductor's): a release without them has the usual product.
    """
    known = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    weights = list(module.parameters())
    fits = all(weight.is_cpu and weight.dtype == torch.float32 for weight in weights)
    small = sum(weight.numel() * weight.element_size() for weight in weights) <= BYTES
    return steps >= STEPS and fits and small and known and torch.backends.mkldnn.is_available()


def product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x [..., D] -> x weightᵀ + bias [..., N], by a packed copy of ``weight`` [N, D] where x has few rows."""
    copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise

    def apply(x: Tensor) -> Tensor:
        if x.numel() > ROWS * x.shape[-1]:
            return F.linear(x, weight, bias)
        return multiply(x, copy, bias, "none", [], "")

    return apply


@contextmanager
def packed(module: Decoder, rows: int, steps: int) -> Iterator[Product]:
    """Inside, the linear maps of ``module`` use packed copies where that serves; yields the product with the first
    ``rows`` rows of its head."""
    head = module.head_weight[:rows]
    if not packs(module, steps):
        yield partial(F.linear, weight=head)
        return
    maps = [part for part in module.layers.modules() if isinstance(part, Linear)]
    try:
        for part in maps:
            part.__dict__["forward"] = product(part.weight, part.bias)  # stands before that of the class
        yield product(head)
    finally:
        for part in maps:
            part.__dict__.pop("forward", None)
