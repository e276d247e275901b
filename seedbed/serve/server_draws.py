"""The draws of many requests in one batch of Transformers' continuous batching, each with its own options and seed.

The engine itself knows temperature, top-k and top-p, one seed for all, and either sampling or not for all. Here a
logits processor makes the whole choice and leaves one token possible, so that options mean what they mean in
`seedbed generate`. Shapes: R rows, V vocabulary.
"""

from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor
from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState

from seedbed.serve.options import GREEDY, Options
from seedbed.serve.sampling import choose, repetition_penalized


class Draws:
    """How one request draws its tokens, and the state of its own generator."""

    def __init__(self, options: Options, seed: int):
        self.options = options
        self.random = Random(seed)
        self.broken = False
        """Whether the model gave scores that are not finite."""

    def __deepcopy__(self, _memo: Any) -> "Draws":
        """The engine copies a request that it puts back into its queue, where the draws go on."""
        return self

    @property
    def plain(self) -> bool:
        """Whether the likeliest token is taken as it is."""
        return self.options.temperature < GREEDY and self.options.repetition_penalty == 1


class Chooser(ContinuousBatchingLogitsProcessor):
    """Decides the next token of each row. ``known`` [V] (bool) are the ids that may be chosen: a vocabulary may be
    padded and have holes."""

    supported_kwargs: dict[str, type] = {"draws": Draws}  # noqa: RUF012 (the engine reads it from the class)
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(self, known: Tensor):
        self._size = len(known)
        self._unknown = None if known.all() else ~known
        self._states: list[RequestState] = []

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[FutureRequestState]) -> Tensor:
        """Called before each step, in the thread that then calls this object."""
        self._states = [request.state for request in requests_with_new_token]
        return torch.zeros(len(self._states), dtype=torch.int32)

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """scores [R, V or more] with all but one of each row at -inf. Rows behind those of the requests that get a
        token belong to prompts that are not read to their end."""
        logits = scores[: len(self._states), : self._size].float()
        if self._unknown is not None:
            logits = logits.masked_fill(self._unknown, -torch.inf)
        chosen = logits.argmax(-1)  # [R]
        finite = logits.amax(-1).isfinite().tolist()
        for row, state in enumerate(self._states):
            draws: Draws = state.logit_processor_kwargs["draws"]
            if not finite[row]:
                draws.broken = True
            elif not draws.plain:
                chosen[row] = _drawn(logits[row, None], state, draws)
        only = torch.full_like(scores, -torch.inf)
        only[:, 0] = 0.0
        only[: len(chosen)] = torch.full_like(scores[: len(chosen)], -torch.inf).scatter_(1, chosen[:, None], 0.0)
        return only


def _drawn(logits: Tensor, state: RequestState, draws: Draws) -> Tensor:
    """One id of a row of logits [1, V]."""
    options = draws.options
    if options.repetition_penalty != 1:
        seen = torch.zeros_like(logits, dtype=torch.bool)
        seen[0, state.initial_tokens + state.generated_tokens] = True
        logits = repetition_penalized(logits, seen, options.repetition_penalty)
    uniform = None
    if options.temperature >= GREEDY:
        uniform = torch.tensor([draws.random.random()], dtype=torch.float64, device=logits.device)
    return choose(logits, options, uniform)[0]
