"""Attention sinks: how much attention goes to the first token of a document (S0 eq. 5; Gu et al. 2024).

The sink score of a head is the mean, over queries, of the attention weight on the first token of the query's own
document. Queries are the second to last tokens of each document (choice: the first token attends to itself alone, its
weight is always 1). A document that goes on from another row has its first token where the row begins: that is all the
model sees of it. Tokens of negative document id are padding and are not counted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seedbed.measure.attention import first_positions
from seedbed.measure.evaluating import evaluating
from seedbed.measure.watch import watching
from seedbed.model import Decoder


@dataclass(frozen=True)
class SinkReport:
    scores: tuple[tuple[float, ...], ...]  # [layers][heads]
    uniform: float  # the score of attention that is spread evenly over all visible tokens
    queries: int
    length: int  # T: scores of different lengths do not compare

    @property
    def layers(self) -> list[float]:
        """Mean over heads, per layer."""
        return [sum(heads) / len(heads) for heads in self.scores]

    def share_above(self, threshold: float = 0.3) -> float:
        """Share of all heads whose score exceeds ``threshold`` (Gu et al.: 0.3)."""
        flat = [score for heads in self.scores for score in heads]
        return sum(score > threshold for score in flat) / len(flat)


def uniform_score(doc_ids: Tensor) -> float:
    """The sink score of uniform attention over the tokens up to the query: mean of 1/(place in the document)."""
    first, queries = first_positions(doc_ids)
    place = torch.arange(doc_ids.shape[1], device=doc_ids.device) - first + 1  # [B, T], from 1
    return float((1 / place)[queries].double().mean())


def sink_report(
    model: Decoder, ids: Tensor, doc_ids: Tensor | None = None, positions: Tensor | None = None
) -> SinkReport:
    """Sink scores of every layer and head of a Decoder on ids [B, T]; the model is left as it was, error or not.

    The fused attention hides its weights: they are computed again from its queries and keys, by blocks of queries, in
    memory that is linear in T. Raises RuntimeError when they do not explain the layer's own output, as with an
    attention function that is not a plain softmax.
    """
    documents = torch.zeros_like(ids) if doc_ids is None else doc_ids
    uniform = uniform_score(documents)
    with watching(model, documents) as layers, evaluating(model):
        model(ids, doc_ids, hidden=True, positions=positions)
    queries = int(first_positions(documents)[1].sum())
    scores = tuple(tuple((sums.sink.sum(0) / queries).tolist()) for sums in layers.values())
    return SinkReport(scores, uniform, queries, ids.shape[1])
