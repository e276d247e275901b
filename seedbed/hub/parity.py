"""Do two models say the same? The gate that whatever is imported or exported passes.

Shapes: B rows, T tokens, V vocabulary.
"""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seedbed.errors import InputError
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.model.cache import KVCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LIMIT = 1e-4
"""Largest difference of two logits in fp32, and where none of them reaches 1 so much of the largest one (choice): of a
small initialization all logits are smaller than that, and any two models would agree."""
LENGTH = 64
"""Tokens that both read, of which a model of fewer positions reads what it can."""
SINGLE = 8
"""Tokens that are given one by one behind a filled cache."""


@dataclass(frozen=True)
class Case:
    """One way to read the same tokens, and how far the two models are apart."""

    batch: int
    length: int
    cached: bool
    """The first half at once, some tokens one by one, the rest at once, all behind one cache."""
    padded: bool
    """Rows begin with padding, of another length each."""
    difference: float
    """Largest absolute difference of two logits of real tokens."""
    largest: float
    """Largest absolute logit of the other model, against which the difference is small or not."""

    @property
    def agrees(self) -> bool:
        return self.difference <= self.limit  # not so for NaN

    @property
    def limit(self) -> float:
        return LIMIT * min(1.0, self.largest)

    def __str__(self) -> str:
        how = f"batch {self.batch}, length {self.length}{', left-padded' if self.padded else ''}"
        return f"{how}, with{'' if self.cached else 'out'} cache"


def parity(ours: Decoder, theirs: "PreTrainedModel", vocab: int) -> list[Case]:
    """How far the logits of two models in fp32 are apart, in each way to read: batch 1 and 8, with and without a cache,
    with and without padding on the left.

    Tokens are drawn below ``vocab``, the ids that both have rows for, always the same ones; so many logits are
    compared. Both models are on one device. Raises ValueError where one of them is not in fp32.
    """
    for model in (ours, theirs):
        if kinds := {str(p.dtype) for p in model.parameters()} - {"torch.float32"}:
            raise ValueError(f"{type(model).__name__} is compared in fp32, not in {', '.join(sorted(kinds))}")
    longest = getattr(theirs.config, "max_position_embeddings", None) or LENGTH
    length = min(LENGTH, longest, ours.config.max_seq_len)
    device = next(ours.parameters()).device
    found = []
    with evaluating(ours), evaluating(theirs):
        for batch in (1, 8):
            for padded in (False, True):
                ids = torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(batch)).to(device)
                padding = _padding(batch, length) if padded else torch.zeros(batch, dtype=torch.int64)
                real = torch.arange(length, device=device) >= padding.to(device)[:, None]  # [B, T]
                for cached in (False,) if padded else (False, True):
                    pieces = _pieces(length) if cached else [length]
                    own = _ours(ours, ids, real, pieces, cached)[..., :vocab][real]
                    other = _theirs(theirs, ids, real, pieces, cached)[..., :vocab][real]
                    gap, largest = float((own - other).abs().amax()), float(other.abs().amax())
                    found.append(Case(batch, length, cached, padded, gap, largest))
    return found


def require_parity(cases: Iterable[Case], where: object) -> None:
    """Raise InputError naming the first case in which the model at ``where`` and ours disagree."""
    for case in cases:
        if not case.agrees:
            raise InputError(
                f"{where}: its logits and ours differ by {case.difference:.3g}, allowed is {case.limit:.3g} ({case}); "
                "nothing was written: report it with the model's configuration"
            )


def _padding(batch: int, length: int) -> Tensor:
    """Tokens of padding of each row, [B]: from a quarter of a row down to none; of a single row a quarter."""
    return torch.linspace(length // 4, 0, batch).long()


def _pieces(length: int) -> list[int]:
    """Tokens that are read at once behind a cache, together ``length``."""
    half = length // 2
    single = min(SINGLE, length - half)
    return [size for size in (half, *[1] * single, length - half - single) if size]


def _ours(model: Decoder, ids: Tensor, real: Tensor, pieces: Sequence[int], cached: bool) -> Tensor:  # [B, T, V]
    cache = KVCache(model.config, *ids.shape, device=ids.device) if cached else None
    documents = None if real.all() else torch.where(real, 0, -1)  # [B, T]
    found, done = [], 0
    for size in pieces:
        span = slice(done, done + size)
        found.append(model(ids[:, span], None if documents is None else documents[:, span], cache=cache))
        done += size
    return torch.cat(found, dim=1)


def _theirs(
    model: "PreTrainedModel", ids: Tensor, real: Tensor, pieces: Sequence[int], cached: bool
) -> Tensor:  # [B, T, V]
    from transformers import DynamicCache

    options: dict[str, Any] = {"use_cache": cached}
    if cached:  # the name that this release has for it
        known = inspect.signature(model.forward).parameters
        options["cache" if "cache" in known else "past_key_values"] = DynamicCache(config=model.config)
    positions = (real.long().cumsum(1) - 1).clamp(min=0)  # [B, T]
    found, done = [], 0
    for size in pieces:
        span, done = slice(done, done + size), done + size
        told = {} if real.all() else {"attention_mask": real[:, :done].long()}
        found.append(model(input_ids=ids[:, span], position_ids=positions[:, span], **told, **options).logits)
    return torch.cat(found, dim=1)
