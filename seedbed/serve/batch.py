"""Rows that are continued together. Shapes: B rows, T tokens, V vocabulary."""

from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

from seedbed.hub.models import LanguageModel
from seedbed.serve.answer import Answer
from seedbed.serve.options import GREEDY
from seedbed.serve.sampling import choose, repetition_penalized

Heard = Callable[[int, str], None]
"""Told the row and what has been added to its text."""


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
        known = model.known.to(model.device)  # [V]
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


def left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """ids [B, T] that end with each prompt, and doc_ids [B, T], -1 for padding; None where there is none."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    if all(len(prompt) == longest for prompt in prompts):
        return ids, None
    padding = torch.tensor([[longest - len(prompt)] for prompt in prompts], device=device)  # [B, 1]
    return ids, -(torch.arange(longest, device=device) < padding).long()
