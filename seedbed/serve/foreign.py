"""Continuing prompts with a model of Transformers: its own ``generate``, which asks us for each token.

The draws, filters, stops and seeds are ours (``Batch.next``), so that options mean the same for every model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seedbed.hub.foreign_words import quiet
from seedbed.serve.batch import Batch, left_padded


def continue_foreign(module: nn.Module, batch: Batch) -> None:
    """Write the answers of ``batch``; shorter prompts are padded on the left."""
    from transformers import LogitsProcessorList, StoppingCriteriaList

    device = next(module.parameters()).device
    ids, documents = left_padded(batch.prompts, device)  # [B, T]
    mask = torch.ones_like(ids) if documents is None else (documents >= 0).long()

    def only_chosen(_ids: Tensor, scores: Tensor) -> Tensor:  # [B, T], [B, V] -> [B, V]
        return torch.full_like(scores, -torch.inf).scatter_(1, batch.next(scores)[:, None], 0.0)

    def finished(_ids: Tensor, _scores: Any, **_: Any) -> Tensor:  # [B] bool
        return torch.tensor(batch.finished, device=device)

    with _greedy(module, batch.limit), quiet():
        module.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids,
            attention_mask=mask,
            logits_processor=LogitsProcessorList([only_chosen]),  # pyright: ignore[reportArgumentType]
            stopping_criteria=StoppingCriteriaList([finished]),  # pyright: ignore[reportArgumentType]
        )


@contextmanager
def _greedy(module: nn.Module, max_new_tokens: int) -> Iterator[None]:
    """Nothing of the model's own generation configuration: what is unset in one that is handed over, `generate` takes
    from there."""
    from transformers import GenerationConfig

    own = module.generation_config
    module.generation_config = GenerationConfig(max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=0)  # pyright: ignore
    try:
        yield
    finally:
        module.generation_config = own
