"""Continuing prompts with a model of Transformers: its own ``generate``, which asks us for each token.

The draws, filters, stops and seeds are ours (``Batch.next``), so that options mean the same for every model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seedbed.hub.foreign_words import quiet
from seedbed.measure.evaluating import evaluating

if TYPE_CHECKING:
    from seedbed.serve.generate import Batch


def continue_foreign(module: nn.Module, batch: "Batch") -> None:
    """Write the answers of ``batch``; shorter prompts are padded on the left."""
    from transformers import LogitsProcessorList, StoppingCriteriaList

    longest = max(map(len, batch.prompts))
    device = next(module.parameters()).device
    ids = torch.zeros(len(batch.prompts), longest, dtype=torch.int64, device=device)  # [B, T]
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(batch.prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt, device=device)
        mask[row, longest - len(prompt) :] = 1

    def only_chosen(_ids: Tensor, scores: Tensor) -> Tensor:  # [B, T], [B, V] -> [B, V]
        return torch.full_like(scores, -torch.inf).scatter_(1, batch.next(scores)[:, None], 0.0)

    def finished(_ids: Tensor, _scores: Any, **_: Any) -> Tensor:  # [B] bool
        return torch.tensor(batch.finished, device=device)

    with evaluating(module), _greedy(module, batch.limit), quiet():
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
