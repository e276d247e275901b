"""Held-out loss in nats per token and bits per byte."""

import math

import torch
from torch import Tensor

from seedbed.data.split import IGNORED, Split
from seedbed.errors import GuardStop
from seedbed.measure.evaluating import evaluating
from seedbed.measure.losses import bits_per_byte
from seedbed.model import Decoder
from seedbed.parallel.world import World
from seedbed.parallel.wrap import split_again
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
    world: World | None = None,
) -> dict[str, float]:
    """Loss over a fixed, evenly spread part of ``split``, weighted by tokens; each rank of ``world`` reads a share.

    ``token_bytes`` [V] is the raw byte length of each token, so that bytes are those of the text predicted; the end of
    a document is predicted too and has none. ``bits_per_byte`` = nats / ln 2 / bytes. Raises GuardStop where there is
    nothing to predict or the loss is not finite.
    """
    world = World(next(model.parameters()).device) if world is None else world
    device, indices = world.device, evenly(len(split), sequences)
    mine = indices[world.rank :: world.size]
    real = len(mine)
    mine += indices[: -(-len(indices) // world.size) - real]  # a sharded model runs on all ranks or on none
    sums = torch.zeros(3, dtype=torch.float64)  # nats, tokens, bytes
    with evaluating(model), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        for start in range(0, len(mine), batch_size):
            world.at(world.place.step, "evaluation")
            batch = split.windows(mine[start : start + batch_size])
            batch.targets[max(real - start, 0) :] = IGNORED
            ids, targets, doc_ids, positions = (x.to(device) for x in batch)
            hidden = model(ids, doc_ids, hidden=True, positions=positions)  # [B, T, D]
            losses = token_losses(hidden, model.head_weight, targets)  # [B, T], 0 if masked
            supervised = batch.targets[batch.targets != IGNORED]
            sums += torch.tensor([losses.double().sum(), supervised.numel(), token_bytes[supervised].sum()])
    split_again(model)
    nats, tokens, n_bytes = world.sum(*sums.tolist())
    if tokens == 0 or n_bytes == 0:
        raise GuardStop("evaluation: the held-out split has no supervised token; prepare the store with a larger one")
    if not math.isfinite(nats):
        raise GuardStop(f"evaluation: the held-out loss is {nats}; a lower optim.lr often helps")
    return {
        "nats_per_token": nats / tokens,
        "bits_per_byte": bits_per_byte(nats, int(n_bytes)),
        "tokens": int(tokens),
        "bytes": int(n_bytes),
    }
