"""The decoder and its parts; these files import torch alone."""

from seedbed.model.cache import KVCache
from seedbed.model.decoder import Decoder

__all__ = ["Decoder", "KVCache"]
