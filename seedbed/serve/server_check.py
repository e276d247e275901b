"""Whether continuous batching gives what the model gives.

It needs a paged cache and attention that classes with code of their own may not know. One that does not know them
writes other tokens, without an error.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seedbed.errors import InputError
from seedbed.measure.evaluating import evaluating
from seedbed.serve.options import Options
from seedbed.serve.server_draws import Draws

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.generation.continuous_batching import ContinuousBatchingManager

STEPS = 4
"""Tokens that are compared."""
TOLERANCE = {torch.float32: 1e-3}
"""Of the spread of the scores, by which the engine's choice may lie below the best one; 3e-2 in half precision."""


def probes(known: Tensor, longest: int) -> list[list[int]]:
    """A short prompt and a longer one of known ids [V] (bool), to be written together."""
    ids = known.nonzero()[:, 0].tolist()
    lengths = [min(length, longest - STEPS) for length in (3, 40)]
    return [[ids[(7 * place + length) % len(ids)] for place in range(length)] for length in lengths if length > 0]


def greedy_scores(module: "PreTrainedModel", known: Tensor, prompts: list[list[int]]) -> list[list[Tensor]]:
    """Scores [V] of each of the next `STEPS` tokens of each prompt, each token by one pass without a cache."""
    found = []
    with evaluating(module):
        for prompt in prompts:
            ids, rows = list(prompt), []
            for _ in range(STEPS):
                scores = module(input_ids=torch.tensor([ids], device=module.device), use_cache=False).logits[0, -1]
                scores = scores[: len(known)].float().masked_fill(~known, -torch.inf)
                rows.append(scores)
                ids.append(int(scores.argmax()))
            found.append(rows)
    return found


def check_engine(manager: "ContinuousBatchingManager", prompts: list[list[int]], scores: list[list[Tensor]]) -> None:
    """Raise InputError unless the running ``manager`` continues ``prompts`` by the likeliest tokens of ``scores``, or
    by ones that are as likely."""
    kind, limit = type(manager.model).__name__, TOLERANCE.get(manager.model.dtype, 3e-2)
    for number, prompt in enumerate(prompts):
        draws = Draws(Options(max_new_tokens=STEPS, temperature=0.0), seed=0)
        manager.add_request(prompt, f"check {number}", STEPS, eos_token_id=-1, draws=draws)
    for _ in prompts:
        output = manager.get_result(timeout=600)
        error = "no answer" if output is None else output.error
        if output is None or error is not None:
            raise InputError(f"{kind}: Transformers' continuous batching cannot run it: {error}")
        for token, row in zip(output.generated_tokens, scores[int(output.request_id.split()[1])], strict=True):
            best = row.max()
            if best - row[token] > limit * (best - row[row.isfinite()].min()):
                raise InputError(
                    f"{kind}: Transformers' continuous batching gives other tokens than the model; use `seedbed "
                    "generate`, or export it to a class of Transformers"
                )
            if token != row.argmax():  # from here on the texts differ
                break
