"""Sampling from a decoder with a key/value cache."""

import torch
from torch import Tensor

from seedbed.model import Decoder, KVCache


def sample(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """One id [B] for each row of logits [B, V]; temperature 0 (or next to it) takes the largest."""
    if temperature < 1e-3:
        return logits.argmax(-1)
    if top_k is not None and top_k < logits.shape[-1]:
        floor = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    return torch.multinomial((logits.float() / temperature).softmax(-1), 1, generator=generator)[:, 0]


@torch.no_grad()
def generate(
    model: Decoder,
    prompt: Tensor,
    max_new_tokens: int,
    eos_id: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    known: Tensor | None = None,
) -> Tensor:
    """Continue prompt [B, T] (int64) by up to ``max_new_tokens``; returns [B, T + n].

    Stops when every row has produced ``eos_id`` (rows that end earlier are filled up with it), or when the model's
    longest sequence is reached. ``known`` [n] (bool) says which ids stand for a token: others, and those from n on, are
    never drawn, since a vocabulary may be padded and have holes.

    Raises ValueError on an empty prompt or one that leaves no room.
    """
    room = model.config.max_seq_len - prompt.shape[1]
    if prompt.shape[1] == 0 or room < 1:
        raise ValueError(f"a prompt has 1 to {model.config.max_seq_len - 1} tokens, not {prompt.shape[1]}")
    parameter = next(model.parameters())
    generator = torch.Generator(parameter.device).manual_seed(seed)
    cache = KVCache(model.config, prompt.shape[0], model.config.max_seq_len, parameter.device, parameter.dtype)
    ids, fresh = prompt, prompt
    ended = torch.zeros(prompt.shape[0], dtype=torch.bool, device=prompt.device)
    for _ in range(min(max_new_tokens, room)):
        last = model(fresh, cache=cache, hidden=True)[:, -1]  # [B, D]
        logits = last @ model.head_weight[: None if known is None else len(known)].T  # [B, n]
        if known is not None:
            logits = logits.masked_fill(~known, -torch.inf)
        chosen = sample(logits, temperature, top_k, generator)
        if eos_id is not None:
            chosen = torch.where(ended, eos_id, chosen)
            ended |= chosen == eos_id
        fresh = chosen[:, None]
        ids = torch.cat((ids, fresh), dim=1)
        if ended.all():
            break
    return ids
