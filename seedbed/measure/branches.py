"""Each residual branch of a decoder by itself on the embedded input.

In a forward pass a branch reads what the branches before it have added. By itself, ||branch(norm(e))|| / ||e|| depends
on the branch's own matrices alone, and theory gives it as a power of the width (science section 2). Where the norms
stand behind the branches it is ||norm(branch(e))|| / ||e||.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.model.decoder import Block

Branch = Literal["attn", "mlp"]


def branch_ratios(
    model: Decoder, branch: Branch, ids: Tensor, doc_ids: Tensor | None = None, positions: Tensor | None = None
) -> Tensor:
    """||what is added|| / ||e|| of ``branch`` of every layer at every token: [L, N] fp64, N the tokens of ids [B, T]
    that are not padding (doc_ids [B, T] below 0). Raises ValueError when no token is left."""
    keep = _tokens(ids, doc_ids)
    layers: Iterable[Block] = model.layers  # pyright: ignore[reportAssignmentType]
    with evaluating(model):
        e, rotation, visible = model.embedded(ids, doc_ids, positions=positions)
        if branch == "attn":
            outs = (layer.attention_of(e, rotation, visible) for layer in layers)
        else:
            outs = (layer.mlp_of(e) for layer in layers)
        return torch.stack([_ratio(out, e)[keep] for out in outs])


def flow_ratios(model: Decoder, ids: Tensor, doc_ids: Tensor | None = None) -> Tensor:
    """Residual flow ||h_L - e|| / ||e|| (S0 section 2.4): [N] fp64, of the same tokens as :func:`branch_ratios`."""
    keep = _tokens(ids, doc_ids)
    with evaluating(model):
        e, rotation, visible = model.embedded(ids, doc_ids)
        h = e
        for layer in model.layers:
            h = layer(h, rotation, visible, None)
        return _ratio(h - e, e)[keep]


def _tokens(ids: Tensor, doc_ids: Tensor | None) -> Tensor:
    """Which of ids [B, T] are no padding."""
    keep = torch.ones_like(ids, dtype=torch.bool) if doc_ids is None else doc_ids >= 0
    if not keep.any():
        raise ValueError("a branch's ratio on zero tokens")
    return keep


def _ratio(x: Tensor, y: Tensor) -> Tensor:
    """||x|| / ||y|| over the last dimension, in fp64: the square of a small branch would vanish in fp32."""
    return x.double().norm(dim=-1) / y.double().norm(dim=-1)
