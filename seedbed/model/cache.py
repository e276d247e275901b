"""Keys and values of the tokens seen so far, for generation."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from seedbed.config import ModelConfig


class LayerCache:
    """Room for ``max_len`` tokens of one layer: keys and values [B, G, max_len, K]."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype):
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k, v [B, G, T, K]; returns all keys and values so far."""
        start, stop = self.length, self.length + k.shape[2]
        if stop > self.keys.shape[2]:
            raise ValueError(f"the cache holds {self.keys.shape[2]} tokens, {stop} are needed")
        self.keys[:, :, start:stop], self.values[:, :, start:stop] = k, v
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]


class KVCache:
    """One LayerCache a layer; pass it to Decoder.forward with the next tokens only."""

    def __init__(
        self,
        config: "ModelConfig",
        batch: int,
        max_len: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        a = config.attention
        assert a.n_kv_heads
        assert a.head_dim
        shape = (batch, a.n_kv_heads, max_len, a.head_dim)
        self.layers = [LayerCache(shape, torch.device(device), dtype) for _ in range(config.n_layers)]

    @property
    def length(self) -> int:
        return self.layers[0].length
