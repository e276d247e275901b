"""Held-out loss in nats a token and bits a byte."""

import math

import torch
from torch import Tensor

from seedbed.data.split import IGNORED, Split
from seedbed.errors import GuardStop
from seedbed.measure.evaluating import evaluating
from seedbed.measure.losses import bits_per_byte
from seedbed.model import Decoder
from seedbed.train.objective import token_losses


def evenly(count: int, wanted: int | None) -> list[int]:
    """``wanted`` indices spread evenly over ``range(count)``; all of them where there are no more."""
    if wanted is None or wanted >= count:
        return list(range(count))
    return [index * count // wanted for index in range(wanted)]


def evaluate(
    model: Decoder,
    split: Split,
    token_bytes: Tensor,
    sequences: int | None,
    batch_size: int,
    precision: str = "fp32",
) -> dict[str, float]:
    """Loss over a fixed, evenly spread part of ``split``, weighted by tokens.

    ``token_bytes`` [V] is the raw byte length of each token, so that bytes are those of the text predicted; the end of
    a document is predicted too and has none. ``bits_per_byte`` = nats / ln 2 / bytes. Raises GuardStop where there is
    nothing to predict or the loss is not finite.
    """
    device = next(model.parameters()).device
    indices = evenly(len(split), sequences)
    nats, tokens, n_bytes = 0.0, 0, 0
    with evaluating(model), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        for start in range(0, len(indices), batch_size):
            batch = split.windows(indices[start : start + batch_size])
            ids, targets, doc_ids, positions = (x.to(device) for x in batch)
            hidden = model(ids, doc_ids, hidden=True, positions=positions)  # [B, T, D]
            losses = token_losses(hidden, model.head_weight, targets)  # [B, T], 0 if masked
            nats += losses.double().sum().item()
            supervised = batch.targets[batch.targets != IGNORED]
            tokens += supervised.numel()
            n_bytes += int(token_bytes[supervised].sum())
    if tokens == 0 or n_bytes == 0:
        raise GuardStop("evaluation: the held-out split has no supervised token; prepare the store with a larger one")
    if not math.isfinite(nats):
        raise GuardStop(f"evaluation: the held-out loss is {nats}; a lower optim.lr often helps")
    return {
        "nats_per_token": nats / tokens,
        "bits_per_byte": bits_per_byte(nats, n_bytes),
        "tokens": tokens,
        "bytes": n_bytes,
    }
