"""Losses in comparable units. Sums go in, never means, so that no batch weighs more than its tokens."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def bits_per_byte(nats: float, n_bytes: int) -> float:
    """Bits per byte of raw UTF-8 text: the summed loss of its tokens in nats, over ``n_bytes * ln 2``.

    Unlike the loss a token it does not depend on the tokenizer. Raises ValueError without a byte to divide by.
    """
    if n_bytes <= 0:
        raise ValueError("bits per byte of zero bytes")
    return nats / (n_bytes * math.log(2))


def perplexity(nats_per_token: float) -> float:
    """``exp`` of the mean loss a token; infinite where that overflows. It depends on the tokenizer."""
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf


def tail_sums(losses: Tensor, doc_ids: Tensor, counts: Tensor) -> Tensor:
    """Sum of the last ``counts`` [B] losses of each row of losses [B, T], as [B] float64.

    Rows are one document each; doc_ids [B, T] are negative where a row is padding, on either side.
    """
    real = doc_ids >= 0  # [B, T]
    from_end = real.flip(1).cumsum(1).flip(1)  # [B, T]: 1 at the last token
    wanted = real & (from_end <= counts[:, None])
    return losses.double().where(wanted, 0.0).sum(1)


@dataclass(frozen=True)
class LogitStats:
    """Scale of the output logits over tokens; a loss near ``ln V`` is expected while ``variance`` is small."""

    variance: float  # over the vocabulary, mean over tokens
    max_abs: float
    log_z: float  # mean log-partition: ln V when all logits are zero
    entropy: float  # of the predicted distribution, nats, mean over tokens
    uniform_loss: float  # ln V


def logit_stats(logits: Tensor) -> LogitStats:
    """Statistics of ``logits`` [..., V] in fp32. Raises ValueError when there is no token."""
    rows = logits.detach().float().flatten(0, -2)  # [N, V]
    if rows.shape[0] == 0:
        raise ValueError("logit statistics of zero tokens")
    return LogitStats(
        variance=float(rows.var(-1, correction=0).mean()),
        max_abs=float(rows.abs().max()),
        log_z=float(torch.logsumexp(rows, -1).mean()),
        entropy=float(torch.special.entr(rows.softmax(-1)).sum(-1).mean()),
        uniform_loss=math.log(rows.shape[-1]),
    )
