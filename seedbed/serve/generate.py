"""Continuing prompts with a model: ours with a key/value cache, one of Transformers by its own ``generate``.

Shapes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from random import Random

import torch
from torch import Tensor

from seedbed.errors import InputError
from seedbed.hub.models import LanguageModel
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder, KVCache
from seedbed.serve.answer import Answer
from seedbed.serve.options import GREEDY, Options
from seedbed.serve.sampling import choose, repetition_penalized

BATCH = 8
"""Rows that are continued together, where nothing else is asked for."""

Heard = Callable[[int, str], None]
"""Told the row and what has been added to its text."""


def end_ids(model: LanguageModel) -> set[int]:
    """Ids with which the model ends what it writes: its tokenizer's end of text, and those of its generation
    configuration where it is one of Transformers."""
    named = getattr(getattr(model.module, "generation_config", None), "eos_token_id", None)
    more = [] if named is None else named if isinstance(named, list) else [named]
    return {model.tokenizer.eos_id, *more}


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    options: Options,
    seeds: Sequence[int] | None = None,
    ends: Collection[int] | None = None,
    batch_size: int = BATCH,
    heard: Heard | None = None,
) -> list[Answer]:
    """Continue each of ``prompts`` (ids, begin of text included); answers in their order.

    ``seeds`` decide the draws of each row, whichever rows are beside it; default 0, 1, … ``ends`` are the ids that end
    an answer, by default `end_ids`. Prompts of like length are continued together, ``batch_size`` at a time.

    Raises InputError for a prompt that is empty or leaves no room in the model's longest sequence.
    """
    for number, prompt in enumerate(prompts, start=1):
        if not 0 < len(prompt) < model.max_length:
            raise InputError(
                f"prompt {number}: {len(prompt)} tokens; {model.name} continues 1 to {model.max_length - 1}"
            )
    seeds, ends = range(len(prompts)) if seeds is None else seeds, end_ids(model) if ends is None else ends
    answers = [Answer(model.tokenizer, options, ends, model.max_length - len(prompt)) for prompt in prompts]
    for rows in batched([len(prompt) for prompt in prompts], batch_size, isinstance(model.module, Decoder)):
        batch = Batch(model, [prompts[i] for i in rows], [answers[i] for i in rows], [seeds[i] for i in rows])
        if heard is not None:
            batch.heard = lambda row, text, rows=rows: heard(rows[row], text)
        _write(model, batch)
    return answers


def batched(lengths: Sequence[int], batch_size: int, equal: bool) -> Iterator[list[int]]:
    """Places of prompts of ``lengths`` that are continued together: of like or ``equal`` length, longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups = [list(g) for _, g in groupby(order, key=lambda i: lengths[i] if equal else 0)]
    return (g[start : start + batch_size] for g in groups for start in range(0, len(g), batch_size))


class Batch:
    """Rows that are continued together; `next` takes the logits of all and decides the token of each."""

    heard: Heard | None = None

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Answer],
        seeds: Sequence[int],
    ):
        self.prompts, self.answers = prompts, answers
        self.options = answers[0].options
        self.limit = max(answer.limit for answer in answers)
        known = torch.from_numpy(model.tokenizer.known()).to(model.device)  # [V]
        self.vocab_size = len(known)
        self._unknown = None if known.all() else ~known
        self._draws = None if self.options.temperature < GREEDY else [Random(seed).random for seed in seeds]
        self._seen = None
        if self.options.repetition_penalty != 1:
            self._seen = torch.zeros(len(prompts), len(known), dtype=torch.bool, device=model.device)
            for row, prompt in enumerate(prompts):
                self._seen[row, torch.tensor(prompt, device=model.device)] = True

    @property
    def finished(self) -> list[bool]:
        """[B]"""
        return [answer.finish is not None for answer in self.answers]

    def next(self, logits: Tensor) -> Tensor:
        """The next id [B] of each row, which is added to its answer, from logits [B, V or more]; outputs beyond the
        vocabulary and those that stand for no token are never chosen."""
        logits = logits[:, : self.vocab_size]
        if self._seen is not None:
            logits = repetition_penalized(logits, self._seen, self.options.repetition_penalty)
        if self._unknown is not None:
            logits = logits.masked_fill(self._unknown, -torch.inf)
        uniform = None
        if self._draws is not None:
            uniform = torch.tensor([draw() for draw in self._draws], dtype=torch.float64, device=logits.device)
        chosen = choose(logits, self.options, uniform)
        if self._seen is not None:
            self._seen.scatter_(1, chosen[:, None], True)
        for row, (answer, token) in enumerate(zip(self.answers, chosen.tolist(), strict=True)):
            if answer.finish is None:
                text = answer.add(token)
                if self.heard is not None and text:
                    self.heard(row, text)
        return chosen


def _write(model: LanguageModel, batch: Batch) -> None:
    if isinstance(model.module, Decoder):
        with evaluating(model.module):
            continue_rows(model.module, batch)
    else:
        from seedbed.serve.foreign import continue_foreign

        continue_foreign(model.module, batch)


def continue_rows(module: Decoder, batch: Batch) -> None:
    """Write the answers of ``batch`` with a key/value cache; all prompts go in at once, then one token a step."""
    head = module.head_weight[: batch.vocab_size]  # [V, D]
    longest = max(map(len, batch.prompts))
    cache = KVCache(module.config, len(batch.prompts), longest + batch.limit, head.device, head.dtype)
    fresh = torch.tensor(batch.prompts, device=head.device)  # [B, T]
    while True:
        hidden = module(fresh, cache=cache, hidden=True)[:, -1]  # [B, D]
        fresh = batch.next(hidden @ head.T)[:, None]  # [B, 1]
        if all(batch.finished):
            return
