"""What bf16 costs: the error of a forward pass, and updates that rounding undoes.

bf16 keeps 7 bits of the mantissa: neighbours of 1.0 are 0.0078 apart.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder

LOGIT_TOKENS = 256  # about this many tokens, evenly spaced, stand for all: logits of every token might not fit
LOST_CHUNK = 2**18  # entries at a time: what is made of them stays in the caches


@dataclass(frozen=True)
class LayerError:
    """Relative error of a bf16 forward pass; the row behind the last layer, ``layer == n_layers``, is the logits'."""

    layer: int
    error: float  # mean over tokens of ||h_bf16 - h_fp32|| / ||h_fp32||; 0 where the two are equal


def bf16_errors(
    model: Decoder, ids: Tensor, doc_ids: Tensor | None, positions: Tensor | None = None
) -> list[LayerError]:
    """Run ``model`` (fp32 weights) on ids [B, T] in fp32 and under bf16 autocast, and compare the residual stream after
    every layer, and the logits of about LOGIT_TOKENS tokens.

    Tokens of negative document id are padding and are not counted. The model is left as it was, error or not. Memory:
    the fp32 states of all layers, L·B·T·D. Raises ValueError when no token is left.
    """
    keep = torch.ones_like(ids, dtype=torch.bool) if doc_ids is None else doc_ids >= 0  # [B, T]
    if not keep.any():
        raise ValueError("bf16 error of zero tokens")
    exact = _states(model, ids, doc_ids, positions, keep)
    with bf16_autocast(ids.device.type):
        rounded = _states(model, ids, doc_ids, positions, keep)
    return [LayerError(index, _error(*pair)) for index, pair in enumerate(zip(rounded, exact, strict=True))]


def lost_share(weight: Tensor, update: Tensor, dtype: torch.dtype = torch.bfloat16) -> float:
    """Share of the entries with ``w + update == w`` when weights are stored as ``dtype``; both of one shape.

    Entries whose update is 0 do not count. NaN where none is left, or where any weight or update is not finite.
    """
    lost = counted = 0
    chunks = (x.detach().flatten().split(LOST_CHUNK) for x in (weight, update))
    for old, step in zip(*chunks, strict=True):
        stored = old.to(dtype)
        moved = stored.float() + step
        if not moved.isfinite().all():
            return math.nan
        changes = step != 0
        lost += int(((moved.to(dtype) == stored) & changes).sum())
        counted += int(changes.sum())
    return lost / counted if counted else math.nan


@contextmanager
def bf16_autocast(device: str) -> Iterator[None]:
    """bf16 autocast for a forward pass; on a CPU its products run in fp32.

    A CPU without bf16 units multiplies bf16 hundreds of times slower than fp32.
    """
    with ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(_Fp32Products())
        stack.enter_context(torch.autocast(device, torch.bfloat16))
        yield


class _Fp32Products(TorchDispatchMode):
    """Replaces products of bf16 tensors by fp32 products of the same numbers, rounded to bf16 once at the end.

    It stands below autocast, which so makes every choice of type itself; a bf16 kernel differs in the order of
    summation only.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in (*_PRODUCTS, _ATTENTION) or args[0].dtype != torch.bfloat16:
            return func(*args, **kwargs)
        if func == _ATTENTION:
            return _attention(*args, **kwargs)
        args, kwargs = tree_map_only(Tensor, Tensor.float, [args, kwargs])
        return func(*args, **kwargs).bfloat16()


_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def _attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(q kᵀ·scale) v as a flash kernel rounds it: exponentials meet the values in bf16, their sum stays in fp32.

    q [B, H, Tq, K], k and v [B, G, Tk, K] -> bf16 [B, H, Tq, K], and the log of the sums [B, H, Tq].
    """
    shared = q.shape[1] // k.shape[1]  # query heads of a key/value head
    k, v = (x.float().repeat_interleave(shared, dim=1) for x in (k, v))
    scores = q.float() @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)  # [B, H, Tq, Tk]
    if causal:
        scores += torch.full(scores.shape[-2:], -math.inf).triu(1)
    if attn_mask is not None:
        scores += attn_mask
    top = scores.amax(-1, keepdim=True)
    powers = scores.sub_(top).exp_()
    total = powers.sum(-1, keepdim=True)
    out = powers.bfloat16().float() @ v / total
    return out.bfloat16(), (top + total.log()).squeeze(-1)


def _states(
    model: Decoder, ids: Tensor, doc_ids: Tensor | None, positions: Tensor | None, keep: Tensor
) -> list[Tensor]:
    """The stream after every layer, [N, D] each for N counted tokens, and the logits [about LOGIT_TOKENS, V]; fp32."""
    states: list[Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for layer in model.layers:
            hook = layer.register_forward_hook(lambda _, args, out: states.append(out[keep].float()))
            stack.callback(hook.remove)
        hidden = model(ids, doc_ids, hidden=True, positions=positions)[keep]  # [N, D]
        some = hidden[:: max(1, len(hidden) // LOGIT_TOKENS)]
        states.append(F.linear(some, model.head_weight).float())
    return states


def _error(rounded: Tensor, exact: Tensor) -> float:
    """Mean over tokens of the relative distance of two states [N, D]."""
    distance = (rounded - exact).norm(dim=-1)
    return float(torch.where(distance == 0, 0, distance / exact.norm(dim=-1)).mean())
