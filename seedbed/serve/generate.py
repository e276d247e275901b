"""Continuing prompts with a model: ours with a key/value cache, one of Transformers by its own ``generate``.

Shapes: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from seedbed.errors import InputError
from seedbed.hub.generating import named_ends
from seedbed.hub.models import LanguageModel
from seedbed.measure.evaluating import evaluating
from seedbed.model import Decoder, KVCache
from seedbed.serve.answer import Answer
from seedbed.serve.batch import Batch, Heard, left_padded
from seedbed.serve.foreign import continue_foreign
from seedbed.serve.options import Options
from seedbed.serve.packed import Product, packed
from seedbed.serve.prompts import check_ids

BATCH = 8
"""Rows that are continued together, where nothing else is asked for."""


def end_ids(model: LanguageModel) -> set[int]:
    """Ids with which the model ends what it writes: its tokenizer's end of text, and those of its generation
    configuration where it is one of Transformers."""
    return {model.tokenizer.eos_id, *named_ends(model.module)}


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

    Raises InputError for a prompt that is empty, leaves no room in the model's longest sequence, or has ids that the
    model cannot read.
    """
    for number, prompt in enumerate(prompts, start=1):
        if not 0 < len(prompt) < model.max_length:
            raise InputError(
                f"prompt {number}: {len(prompt)} tokens; {model.name} continues 1 to {model.max_length - 1}"
            )
        check_ids(model, prompt, f"prompt {number}")
    seeds, ends = range(len(prompts)) if seeds is None else seeds, end_ids(model) if ends is None else ends
    answers = [Answer(model.tokenizer, options, ends, model.max_length - len(prompt)) for prompt in prompts]
    groups = batched([len(prompt) for prompt in prompts], batch_size, model.max_length - options.max_new_tokens)
    with _writer(model, max((answer.limit for answer in answers), default=0)) as write:
        for rows in groups:
            batch = Batch(model, [prompts[i] for i in rows], [answers[i] for i in rows], [seeds[i] for i in rows])
            if heard is not None:
                batch.heard = lambda row, text, rows=rows: heard(rows[row], text)
            write(batch)
    return answers


def batched(lengths: Sequence[int], batch_size: int, longest: float) -> Iterator[list[int]]:
    """Places of prompts of ``lengths`` that are continued together: of like length, longest first.

    Only of equal length where one is longer than ``longest``: padding must not take the room of an answer.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        first = lengths[batch[0]] if batch else 0
        if len(batch) == batch_size or (batch and first > longest and lengths[place] != first):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


@contextmanager
def _writer(model: LanguageModel, steps: int) -> Iterator[Callable[[Batch], None]]:
    """What writes the answers of a batch, of ``steps`` tokens at most."""
    with evaluating(model.module), torch.inference_mode():
        if not isinstance(model.module, Decoder):
            yield partial(continue_foreign, model.module)
            return
        with packed(model.module, model.tokenizer.vocab_size, steps) as head:
            yield partial(continue_rows, model.module, head)


def continue_rows(module: Decoder, head: Product, batch: Batch) -> None:
    """Write the answers of ``batch`` with a key/value cache; all prompts go in at once, then one token a step."""
    longest, weight = max(map(len, batch.prompts)), module.embed.weight
    cache = KVCache(module.config, len(batch.prompts), longest + batch.limit, weight.device, weight.dtype)
    fresh, documents = left_padded(batch.prompts, weight.device)
    while True:
        hidden = module(fresh, documents, cache=cache, hidden=True)[:, -1]  # [B, D]
        fresh, documents = batch.next(head(hidden))[:, None], None  # [B, 1]
        if all(batch.finished):
            return
