"""The attention weights of a running model, ours or one of Transformers, which their fused attention hides.

They are computed again from the queries and keys that attention is given, in blocks of queries, and have to explain
what the layer itself puts out. Shapes as in `seedbed.measure.attention`; G key/value heads, K head width.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.measure.attention import AttentionSums, NotExplainedError, attention_sums
from seedbed.model import Decoder
from seedbed.model.attention import document_starts

NAME = "seedbed_watched"
"""Of the implementation that is registered with Transformers."""

PRECISE, ROUGH = 1e-3, 0.02
"""How far a head's outputs may be from those of the recomputed weights, as a share of its largest: where both are in
fp32, and where the model's are in 16 bits."""

_watched: ContextVar[Callable[..., tuple[Tensor, None]]] = ContextVar("watched")


@contextmanager
def watching(model: nn.Module, doc_ids: Tensor) -> Iterator[dict[int, AttentionSums]]:
    """While the model reads rows of doc_ids [B, T], the sums of each layer's attention, by the layer's number.

    The model is left as it was, error or not. Raises NotExplainedError where the weights that are computed again do not
    give the layer's output, or the model has another way to attend than Transformers' attention interface.
    """
    found: dict[int, AttentionSums] = {}
    with _decoder(model, doc_ids, found) if isinstance(model, Decoder) else _transformers(model, doc_ids, found):
        yield found


@contextmanager
def _decoder(model: Decoder, doc_ids: Tensor, found: dict[int, AttentionSums]) -> Iterator[None]:
    attentions: list[Any] = [layer.attn for layer in model.layers]
    originals = [attention.attend for attention in attentions]
    try:
        for layer, attention in enumerate(attentions):
            attention.attend = _attend(attention.attend, doc_ids, found, layer)
        yield
    finally:
        for attention, original in zip(attentions, originals, strict=True):
            attention.attend = original


def _attend(
    attend: Callable[..., Tensor], doc_ids: Tensor, found: dict[int, AttentionSums], layer: int
) -> Callable[..., Tensor]:
    """``attend``, which puts the sums of its heads into ``found``."""
    first = document_starts(doc_ids)  # [B, T]
    index = torch.arange(doc_ids.shape[1], device=doc_ids.device)

    def watched(q: Tensor, k: Tensor, v: Tensor, visible: object) -> Tensor:
        out = attend(q, k, v, visible)  # [B, H, T, K]
        batch, heads, _, width = q.shape
        groups = k.shape[1]

        def weigh(rows: slice) -> tuple[Tensor, Tensor]:
            stop = rows.stop
            seen = (first[:, rows, None] == first[:, None, :stop]) & (index[rows, None] >= index[:stop])
            shared = q[:, :, rows].reshape(batch, groups, -1, width).float()  # [B, G, H/G Q, K]
            scores = shared @ k[:, :, :stop].float().transpose(-1, -2) / math.sqrt(width)
            scores = scores.view(batch, heads, -1, stop)
            weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)  # [B, H, Q, S]
            again = weights.view(batch, groups, -1, stop) @ v[:, :, :stop].float()
            _check(again.view(batch, heads, -1, v.shape[-1]), out, rows, layer)
            return weights, seen[:, None]

        found[layer] = attention_sums(weigh, doc_ids, heads)
        return out

    return watched


@contextmanager
def _transformers(model: Any, doc_ids: Tensor, found: dict[int, AttentionSums]) -> Iterator[None]:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if not model._can_set_attn_implementation():
        raise NotExplainedError(f"{type(model).__name__} does not attend through Transformers' attention interface")
    AttentionInterface.register(NAME, lambda *args, **kwargs: _watched.get()(*args, **kwargs))
    AttentionMaskInterface.register(NAME, sdpa_mask)
    own = model.config._attn_implementation
    token = _watched.set(_interface(own, doc_ids, found))
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        model.set_attn_implementation(own)
        _watched.reset(token)


def _interface(own: str, doc_ids: Tensor, found: dict[int, AttentionSums]) -> Callable[..., tuple[Tensor, None]]:
    """An attention function for Transformers. The weights are those of the model's own eager attention, which knows its
    soft cap and its learned sinks, asked for a block of queries at a time; the output is that of the implementation
    ``own``.
    """
    from transformers import AttentionInterface

    def watched(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, None]:
        name = type(module).__name__
        layer = getattr(module, "layer_idx", len(found))
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            raise NotExplainedError(f"{name} has no eager attention to take weights from")
        if query.shape[2] != doc_ids.shape[1] or key.shape[2] != query.shape[2] or layer in found:
            raise NotExplainedError(f"{name} of layer {layer} does not attend once from each token to the tokens")
        own_out = None
        if own != "eager":
            own_out = AttentionInterface()[own](module, query, key, value, mask, **options)[0].transpose(1, 2)
        outs: list[Tensor] = []

        def weigh(rows: slice) -> tuple[Tensor, Tensor]:
            seen = _seen(mask, rows, query.device)  # [B or 1, 1, Q, S]
            added = torch.zeros_like(seen, dtype=query.dtype).masked_fill(~seen, torch.finfo(query.dtype).min)
            asked, (keys, values) = query[:, :, rows], (x[:, :, : rows.stop] for x in (key, value))
            out, weights = eager(module, asked, keys, values, added, **options)  # [B, Q, H, K], [B, H, Q, S]
            if own_out is None:
                outs.append(out)
            else:
                _check(out.transpose(1, 2), own_out, rows, layer)
            return weights, seen

        found[layer] = attention_sums(weigh, doc_ids, query.shape[1])
        return torch.cat(outs, 1) if own_out is None else own_out.transpose(1, 2), None

    return watched


def _seen(mask: Tensor | None, rows: slice, device: torch.device) -> Tensor:
    """Which keys the queries see: mask is None (causal), or [B, 1, T, T], bool or added to the scores."""
    if mask is None:
        keys = torch.arange(rows.stop, device=device)
        return (keys[rows, None] >= keys)[None, None]
    part = mask[:, :1, rows, : rows.stop]
    return part if part.dtype == torch.bool else part > torch.finfo(part.dtype).min / 2


def _check(again: Tensor, out: Tensor, rows: slice, layer: int) -> None:
    """``again`` [B, H, Q, K] must be the rows of out [B, H, T, K], to their precision, in each row and head."""
    tolerance = ROUGH if out.dtype in (torch.bfloat16, torch.float16) else PRECISE
    error = (again.float() - out[:, :, rows].float()).abs().amax((-1, -2))  # [B, H]
    # some kernels make a number of scores that are NaN
    if not (out.isfinite().all() and again.isfinite().all()):
        raise NotExplainedError(f"layer {layer}: the output of attention is not finite")
    if not (error <= tolerance * out.float().abs().amax((-1, -2))).all():
        raise NotExplainedError(
            f"layer {layer}: attention is not the softmax that was recomputed: "
            f"outputs differ by {float(error.max()):.3g}"
        )
