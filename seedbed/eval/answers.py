"""Answers to prompts for lm-evaluation-harness's tasks: by our generator, or by Transformers' own."""

from typing import Any

import torch
from torch import nn

from seedbed.errors import InputError
from seedbed.hub.models import LanguageModel
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder
from seedbed.serve.generate import generate

SEED = 1234
"""Of drawn answers, as lm-evaluation-harness's."""
_OURS = {"do_sample", "temperature", "top_k"}


def answers(
    model: LanguageModel,
    tokenizer: Any,
    prompts: list[list[int]],
    new: int,
    stops: list[str],
    options: dict[str, Any],
) -> list[list[int]]:
    """Ids of the answer to each prompt, up to ``new``; what follows a stop is the caller's to cut.

    ``options`` are those of a task: ``do_sample`` and, where that is true, temperature and what else the generator
    knows. Raises InputError for one that ours does not.
    """
    options = dict(options)
    if not options["do_sample"]:
        options.pop("temperature", None)
    if isinstance(model.module, Decoder):
        return _ours(model, model.module, prompts, new, options)
    with evaluating(model.module):
        return _theirs(model.module, tokenizer, prompts, new, stops, options)


def _ours(
    model: LanguageModel, decoder: Decoder, prompts: list[list[int]], new: int, options: dict[str, Any]
) -> list[list[int]]:
    if unknown := sorted(set(options) - _OURS):
        raise InputError(f"{model.name}: the task asks for {unknown[0]} in generation, which is not known here")
    temperature = options.get("temperature", 1.0) if options["do_sample"] else 0.0
    known = torch.from_numpy(model.tokenizer.known()).to(model.device)
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        made = generate(decoder, ids, new, model.tokenizer.eos_id, temperature, options.get("top_k"), SEED, known)
        found.append(made[0, len(prompt) :].tolist())
    return found


def _theirs(
    module: nn.Module,
    tokenizer: Any,
    prompts: list[list[int]],
    new: int,
    stops: list[str],
    options: dict[str, Any],
) -> list[list[int]]:
    """As HFLM: padding in front, and an end when each row has a stop."""
    from lm_eval.models.utils_hf import stop_sequences_criteria

    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), tokenizer.pad_token_id)  # [B, T]
    real = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        real[row, longest - len(prompt) :] = 1
    device = next(module.parameters()).device
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.manual_seed(SEED)
        made = module.generate(  # pyright: ignore (a method of Transformers' classes)
            input_ids=ids.to(device),
            attention_mask=real.to(device),
            max_length=longest + new,
            stopping_criteria=stop_sequences_criteria(tokenizer, stops, longest, len(prompts)),
            pad_token_id=tokenizer.pad_token_id,
            use_cache=True,
            **options,
        )
    return made[:, longest:].tolist()
