"""RMSNorm, LayerNorm and linear maps as the decoder uses them."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seedbed.model.passes import rms_normed


class Linear(nn.Linear):
    """A linear map that is born undrawn: its entries are NaN until an initialization writes them."""

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, torch.nan)
        if self.bias is not None:
            nn.init.constant_(self.bias, torch.nan)


class FusedLinear(Linear):
    """Several linear maps of one input as one matrix product; ``blocks`` names them and their rows, in order."""

    def __init__(self, d_in: int, blocks: dict[str, int], bias: bool):
        self.blocks = blocks
        super().__init__(d_in, sum(blocks.values()), bias=bias)


class Embedding(nn.Embedding):
    """A lookup table that is born undrawn."""

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, torch.nan)


class RMSNorm(nn.RMSNorm):
    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, torch.nan)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return super().forward(x)  # one kernel
        return rms_normed(x, self.weight, self.eps)  # pyright: ignore[reportArgumentType]


class LayerNorm(nn.LayerNorm):
    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, torch.nan)
        if self.bias is not None:
            nn.init.constant_(self.bias, torch.nan)


def make_norm(kind: str, width: int, eps: float, bias: bool) -> nn.Module:
    return RMSNorm(width, eps=eps) if kind == "rmsnorm" else LayerNorm(width, eps=eps, bias=bias)


def gelu(x: Tensor) -> Tensor:
    """GELU by tanh, as GPT-2 has it."""
    return F.gelu(x, approximate="tanh")
