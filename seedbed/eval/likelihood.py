"""Summed losses of sequences: what bits per byte and minimal pairs are made of."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from seedbed.data.batching import batches, padded
from seedbed.errors import InputError
from seedbed.files.parts import Parts
from seedbed.hub.models import LanguageModel
from seedbed.measure.losses import tail_sums

BATCH_TOKENS = 8192
"""Of a batch, padding included; one longer row is a batch of its own."""


class Line(NamedTuple):
    """What a model reads in one row, and of how many of its last tokens the losses count."""

    place: int
    """Its number, from 0."""
    where: str
    """What errors call it."""
    ids: list[int]
    counted: int


def summed_losses(
    model: LanguageModel,
    lines: Sequence[Line],
    parts: Parts,
    tell: Callable[[str], None],
    name: str,
    batch_tokens: int = BATCH_TOKENS,
) -> list[float]:
    """Nats of each line, summed in float64 over the tokens that count; the batches change them by rounding alone.

    Lines of like length share a batch, so that little is padding. Each batch is a part, called after ``name``. Raises
    InputError where a loss is not finite.
    """
    found = [0.0] * len(lines)
    groups = list(batches(lines, batch_tokens))
    for number, group in enumerate(groups, 1):
        tell(f"batch {number:,} of {len(groups):,}")
        sums = parts.get(f"{name} {number}", lambda group=group: _sums(model, group))
        for line, nats in zip(group, sums, strict=True):
            found[line.place] = nats
    return found


def _sums(model: LanguageModel, group: Sequence[Line]) -> list[float]:
    rows = padded(group, model.tokenizer.eos_id)
    ids, doc_ids = rows.ids.to(model.device), rows.doc_ids.to(model.device)
    counts = torch.tensor([line.counted for line in group], device=model.device)  # [B]
    sums = tail_sums(model.losses(ids, doc_ids), doc_ids, counts)  # [B]
    if not sums.isfinite().all():
        line = group[int(sums.isfinite().int().argmin())]
        raise InputError(
            f"{model.name}: its loss is not finite on {line.where}; its weights are damaged, or overflow: see "
            "`seedbed analyze weights`"
        )
    return sums.tolist()
