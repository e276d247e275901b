"""Norms and how much of their denominator is epsilon (S0 section 2.1)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

USUAL_EPS = 1e-5  # of most models: what it would mask stands beside what the model's own epsilon does
EPSILONS = ("eps", "variance_epsilon", "epsilon")  # what norms call theirs


class Norm(NamedTuple):
    eps: float
    centred: bool  # subtracts the mean over features first, as LayerNorm does

    def second_moment(self, x: Tensor) -> Tensor:
        """sigma^2 [...] of vectors x [..., K] in fp64: mean of x^2, or of (x - mean x)^2."""
        x = x.double()
        return (x - x.mean(-1, keepdim=True) if self.centred else x).square().mean(-1)


def masking_ratio(second_moment: Tensor, eps: float) -> Tensor:
    """``eps / (sigma^2 + eps)``, the masking ratio of a norm (S0 section 2.1), element by element."""
    return eps / (second_moment + eps)


def norm_of(module: nn.Module, x: Tensor, out: Tensor) -> Norm | str:
    """What kind of norm ``module`` is, which made ``out`` of ``x`` [..., K]; or why that is not known."""
    if isinstance(module, nn.GroupNorm | nn.modules.batchnorm._NormBase):
        return f"a {type(module).__name__} does not norm one token"
    eps = next((getattr(module, name) for name in EPSILONS if hasattr(module, name)), "none")
    if eps is None and isinstance(module, nn.RMSNorm):  # torch's default: that of the input's type
        eps = torch.finfo(x.dtype).eps
    if not isinstance(eps, float):
        return f"a {type(module).__name__} without {', '.join(EPSILONS[:-1])} or {EPSILONS[-1]}"
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return Norm(eps, isinstance(module, nn.LayerNorm))
    return Norm(eps, _ignores_mean(module, x, out))


def vectors(x: Tensor, keep: Tensor) -> Tensor | None:
    """The rows of x that belong to kept tokens, keep [B, T]: [N, K], or [N, heads, K]. None where x has no such order.

    x is [B, T, K], [B T, K], [B, T, heads, K] or [B, heads, T, K]; the last two are told apart where there are as many
    heads as tokens by what lies closer together in memory.
    """
    batch, length = keep.shape
    if x.ndim == 2 and len(x) == batch * length:
        x = x.unflatten(0, (batch, length))
    heads_first = x.ndim == 4 and x.shape[2] == length
    if heads_first and (x.shape[1] != length or x.stride(1) < x.stride(2)):
        x = x.transpose(1, 2)
    return x[keep] if x.ndim >= 3 and x.shape[:2] == keep.shape else None


def _ignores_mean(module: nn.Module, x: Tensor, out: Tensor) -> bool:
    """Found by trying: with a constant added to all features the output of a centred norm stays what it was."""
    shift = x.square().mean(-1, keepdim=True).sqrt()
    moved = (module.forward(x + shift) - out).double()
    return bool(moved.nan_to_num().norm() < 1e-2 * out.double().nan_to_num().norm())
