"""Do two models say the same? The gate that whatever is imported or exported passes.

Shapes: B rows, T tokens, V vocabulary.
"""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seedbed.data.tokenizer import Tokenizer
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
TEXT = (
    "The capital of France is Paris, which lies on the river Seine. Water boils at one hundred degrees Celsius at sea "
    "level, and it freezes at zero degrees. She opened the door, looked around the empty room, and sat down on the old "
    "wooden chair by the window. def area(r): return 3.14 * r**2  # of a circle. 春天来了，河边的柳树发了新芽。"
)
"""What models are compared on: unlike tokens at random it leaves the rounding of a trained model where it is in use."""


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
    """Largest absolute difference of two logits of real tokens, in fp32."""
    largest: float
    """Largest absolute logit of the other model, against which the difference is small or not."""
    in_fp64: float | None = None
    """The same difference in fp64, measured where rounding in fp32 may be all there is to it."""

    @property
    def agrees(self) -> bool:
        return self.difference <= self.limit or (self.in_fp64 is not None and self.in_fp64 <= self.limit)  # never NaN

    @property
    def limit(self) -> float:
        return LIMIT * min(1.0, self.largest)

    def __str__(self) -> str:
        how = f"batch {self.batch}, length {self.length}{', left-padded' if self.padded else ''}"
        return f"{how}, with{'' if self.cached else 'out'} cache"


def parity(ours: Decoder, theirs: "PreTrainedModel", vocab: int, tokenizer: Tokenizer | None = None) -> list[Case]:
    """How far the logits of two models in fp32 are apart, in each way to read: batch 1 and 8, with and without a cache,
    with and without padding on the left.

    They read TEXT, or without a ``tokenizer`` ids below ``vocab`` at random, always the same ones; logits of ids below
    ``vocab`` are compared. A deep model with large logits may round by more than LIMIT in fp32: where they are less
    than ten times that apart, the case is measured in fp64 too, in which Transformers keeps its norms and rotations
    in fp32. Both models are on one device. Raises ValueError where one of them is not in fp32.
    """
    for model in (ours, theirs):
        if kinds := {str(p.dtype) for p in model.parameters()} - {"torch.float32"}:
            raise ValueError(f"{type(model).__name__} is compared in fp32, not in {', '.join(sorted(kinds))}")
    longest = getattr(theirs.config, "max_position_embeddings", None) or LENGTH
    length = min(LENGTH, longest, ours.config.max_seq_len)
    ids = (_drawn(vocab, length) if tokenizer is None else _read(tokenizer, length)).to(next(ours.parameters()).device)
    ways = list(product((1, len(ids)), (False, True), (False, True)))
    with evaluating(ours), evaluating(theirs):
        cases = [_measured(ours, theirs, ids, vocab, *way) for way in ways]
        if any(case.limit < case.difference < 10 * case.limit for case in cases):
            for model in (ours, theirs):
                nn.Module.double(model)  # Transformers' own refuses one that was read from GGUF
            exact = [_measured(ours, theirs, ids, vocab, *way) for way in ways]
            for model in (ours, theirs):
                nn.Module.float(model)  # without loss: that is where the numbers came from
            cases = [replace(case, in_fp64=other.difference) for case, other in zip(cases, exact, strict=True)]
    return cases


def require_parity(cases: Iterable[Case], where: object) -> None:
    """Raise InputError naming the first case in which the model at ``where`` and ours disagree."""
    for case in cases:
        if not case.agrees:
            raise InputError(
                f"{where}: its logits and ours differ by {case.difference:.3g}, allowed is {case.limit:.2g} ({case}); "
                "nothing was written: report it with the model's configuration"
            )


def _measured(
    ours: Decoder, theirs: "PreTrainedModel", ids: Tensor, vocab: int, batch: int, padded: bool, cached: bool
) -> Case:
    ids = ids[:batch]  # [B, T]
    length = ids.shape[1]
    padding = _padding(batch, length) if padded else torch.zeros(batch, dtype=torch.int64)
    real = torch.arange(length, device=ids.device) >= padding.to(ids.device)[:, None]  # [B, T]
    pieces = _pieces(length) if cached else [length]
    own = _ours(ours, ids, real, pieces, cached)[..., :vocab][real]
    other = _theirs(theirs, ids, real, pieces, cached)[..., :vocab][real]
    return Case(batch, length, cached, padded, float((own - other).abs().amax()), float(other.abs().amax()))


def _drawn(vocab: int, length: int) -> Tensor:  # [8, T]
    return torch.randint(vocab, (8, length), generator=torch.Generator().manual_seed(0))


def _read(tokenizer: Tokenizer, length: int) -> Tensor:  # [8, T], rows begin at different places of the text
    found = torch.tensor(tokenizer.encode(TEXT))
    return found[(torch.arange(8)[:, None] * 17 + torch.arange(length)) % len(found)]


def _padding(batch: int, length: int) -> Tensor:
    """Tokens of padding of each row, [B]: from a quarter of a row down to none; of a single row a quarter."""
    return torch.linspace(length // 4, 0, batch).long()


def _pieces(length: int) -> list[int]:
    """Tokens that are read at once behind a cache, together ``length``."""
    half = length // 2
    single = min(SINGLE, length - half)
    return [size for size in (half, *[1] * single, length - half - single) if size]


def _ours(model: Decoder, ids: Tensor, real: Tensor, pieces: Sequence[int], cached: bool) -> Tensor:  # [B, T, V]
    like = model.embed.weight
    cache = KVCache(model.config, *ids.shape, device=like.device, dtype=like.dtype) if cached else None
    documents = None if real.all() else torch.where(real, 0, -1)  # [B, T]
    found, done = [], 0
    for size in pieces:
        first = None if documents is None or done else documents[:, :size]  # a cache keeps what the first tokens tell
        found.append(model(ids[:, done : done + size], first, cache=cache))
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
