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
    """One LayerCache a layer, and how much padding each row begins with; pass it to Decoder.forward with the next
    tokens only."""

    padding: Tensor | None = None  # [B, 1] tokens; None where no row has any

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

    def pad(self, doc_ids: Tensor) -> None:
        """Take the padding of the first tokens, which have doc_ids [B, T]: negative ones on the left of a row, and one
        document behind them. Raises ValueError for anything else, and when the cache is filled."""
        if self.length:
            raise ValueError("doc_ids with a filled cache: give them with the first tokens, the cache keeps them")
        padding = (doc_ids < 0).sum(1, keepdim=True)  # [B, 1]
        behind = torch.arange(doc_ids.shape[1], device=doc_ids.device) >= padding  # [B, T]
        last = doc_ids[:, -1:]
        if not bool(((doc_ids < 0) != behind).all() & ((doc_ids == last) | ~behind).all()):
            raise ValueError("a cache holds one document a row: padding, doc_ids below 0, on its left alone")
        self.padding = padding if bool(padding.any()) else None

    def visible(self, length: int) -> Tensor | None:
        """Which keys the next ``length`` tokens may see, bool [1 or B, 1, length, all so far and those]; None: all."""
        if length == 1 and self.padding is None:
            return None
        device = self.layers[0].keys.device
        keys = torch.arange(self.length + length, device=device)
        seen = (keys <= keys[self.length :, None])[None, None]
        return seen if self.padding is None else seen & (keys >= self.padding)[:, None, None]
