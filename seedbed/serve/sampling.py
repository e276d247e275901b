"""From logits to the next token: pure functions. Shapes: B rows, V vocabulary.

Written here, since a run is sampled where Transformers is not installed; the tests hold each against its processor.
"""

import torch
from torch import Tensor

from seedbed.serve.options import GREEDY, Options


def repetition_penalized(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """logits [B, V] with those of the tokens that a row has ``seen`` [B, V] (bool) divided by ``penalty`` where they
    are positive and multiplied where they are negative."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def top_k_filtered(logits: Tensor, k: int) -> Tensor:
    """logits [B, V] with -inf for all below the k-th largest of the row; ties with it stay."""
    if k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k).values[:, -1:], -torch.inf)


def top_p_filtered(logits: Tensor, p: float) -> Tensor:
    """logits [B, V] with -inf for the least likely tokens that together have at most 1 - p; the likeliest stays."""
    rising, order = logits.sort(-1)
    dropped = rising.softmax(-1).cumsum(-1) <= 1 - p
    dropped[:, -1] = False
    return logits.masked_fill(dropped.scatter(1, order, dropped), -torch.inf)


def min_p_filtered(logits: Tensor, p: float) -> Tensor:
    """logits [B, V] with -inf for tokens less than p times as likely as the likeliest of the row."""
    likely = logits.softmax(-1)
    return logits.masked_fill(likely < p * likely.amax(-1, keepdim=True), -torch.inf)


def filtered(logits: Tensor, options: Options) -> Tensor:
    """logits [B, V] over the temperature, which is not greedy, and -inf for what may not be drawn."""
    logits = logits.float() / options.temperature
    if options.top_k is not None:
        logits = top_k_filtered(logits, options.top_k)
    if options.top_p is not None and options.top_p < 1:
        logits = top_p_filtered(logits, options.top_p)
    if options.min_p is not None:
        logits = min_p_filtered(logits, options.min_p)
    return logits


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """An id [B] for each row of logits [B, V], by inversion: ids are laid along [0, 1) in order, each as long as its
    probability, and ``uniform`` [B] (float64 in [0, 1)) falls onto one.

    So a row's draw is decided by its own number and its own logits. An id of probability zero is never drawn.
    """
    along = logits.softmax(-1).cumsum(-1, dtype=torch.float64)  # [B, V]
    place = uniform[:, None] * (1 - 2**-50) * along[:, -1:]  # below the end, also once rounded
    return torch.searchsorted(along, place, right=True)[:, 0]


def choose(logits: Tensor, options: Options, uniform: Tensor | None) -> Tensor:
    """The next id [B] of each row of logits [B, V]; ``uniform`` [B] is not looked at where that is greedy."""
    if options.temperature < GREEDY or uniform is None:
        return logits.argmax(-1)
    return draw(filtered(logits, options), uniform)
