"""Attention sinks: how much attention goes to the first token of a document (S0 eq. 5; Gu et al. 2024).

The sink score of a head is the mean, over queries, of the attention weight on the first token of the query's own
document. Queries are the second to last tokens of each document (choice: the first token attends to itself alone, its
weight is always 1). A document that goes on from another row has its first token where the row begins: that is all the
model sees of it. Tokens of negative document id are padding and are not counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seedbed.measure.evaluating import evaluating
from seedbed.model.attention import document_mask, document_starts


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


def first_positions(doc_ids: Tensor) -> tuple[Tensor, Tensor]:
    """For doc_ids [B, T]: the position of each token's document start [B, T], and which tokens are queries [B, T].

    A document is a run of equal ids. Raises ValueError when no document has a second token.
    """
    first = document_starts(doc_ids)
    index = torch.arange(doc_ids.shape[1], device=doc_ids.device)  # [T]
    queries = (index > first) & (doc_ids >= 0)
    if not queries.any():
        raise ValueError("sink score without a query: no document has a second token")
    return first, queries


def sink_scores(weights: Tensor, doc_ids: Tensor) -> Tensor:
    """Sink score per head, [H], of attention weights [B, H, T, T] (queries by keys, rows sum to 1)."""
    first, queries = first_positions(doc_ids)
    index = first[:, None, :, None].expand(-1, weights.shape[1], -1, 1)
    on_first = weights.gather(-1, index).squeeze(-1).float()  # [B, H, T]
    return (on_first * queries[:, None]).sum((0, 2)) / queries.sum()


def uniform_score(doc_ids: Tensor) -> float:
    """The sink score of uniform attention over the tokens up to the query: mean of 1/(place in the document)."""
    first, queries = first_positions(doc_ids)
    place = torch.arange(doc_ids.shape[1], device=doc_ids.device) - first + 1  # [B, T], from 1
    return float((1 / place)[queries].double().mean())


def attention_weights(q: Tensor, k: Tensor, doc_ids: Tensor) -> Tensor:
    """softmax(q kᵀ/√K) inside documents, causal: q, k [T, K] of one row and head, doc_ids [T] -> [T, T], fp32."""
    scores = q.float() @ k.float().T / math.sqrt(q.shape[-1])
    return scores.masked_fill(~document_mask(doc_ids[None])[0, 0], -math.inf).softmax(-1)


def sink_report(
    model: nn.Module, ids: Tensor, doc_ids: Tensor | None = None, positions: Tensor | None = None
) -> SinkReport:
    """Sink scores of every layer and head of a Decoder on ids [B, T]; the model is left as it was, error or not.

    The fused attention hides its weights: they are computed again from its queries and keys, one row and head at a
    time, so that a T x T matrix is all the memory it takes. Raises RuntimeError when they do not explain the layer's
    own output, as with an attention function that is not a plain softmax.
    """
    documents = torch.zeros_like(ids) if doc_ids is None else doc_ids
    uniform = uniform_score(documents)
    _, queries = first_positions(documents)
    scores: list[tuple[float, ...]] = []
    attentions = [layer.attn for layer in model.layers]  # pyright: ignore[reportGeneralTypeIssues]
    originals = [attention.attend for attention in attentions]
    try:
        for attention, original in zip(attentions, originals, strict=True):
            attention.attend = _watched(original, documents, scores)
        with evaluating(model):
            model(ids, doc_ids, hidden=True, positions=positions)
    finally:
        for attention, original in zip(attentions, originals, strict=True):
            attention.attend = original
    return SinkReport(tuple(scores), uniform, int(queries.sum()), ids.shape[1])


def _watched(attend: Callable[..., Tensor], doc_ids: Tensor, scores: list[tuple[float, ...]]) -> Callable[..., Tensor]:
    """``attend``, which appends the sink scores of its heads to ``scores``."""
    queries = first_positions(doc_ids)[1].sum(1)  # [B]

    def watched(q: Tensor, k: Tensor, v: Tensor, visible: object) -> Tensor:
        out = attend(q, k, v, visible)  # [B, H, T, K]
        totals = [0.0] * q.shape[1]
        for row in torch.nonzero(queries).flatten().tolist():
            for head in range(q.shape[1]):
                shared = head * k.shape[1] // q.shape[1]  # the key/value head of this query head
                weights = attention_weights(q[row, head], k[row, shared], doc_ids[row])
                _check(weights @ v[row, shared].float(), out[row, head].float())
                score = sink_scores(weights[None, None], doc_ids[row, None])
                totals[head] += float(score) * int(queries[row])
        scores.append(tuple(total / int(queries.sum()) for total in totals))
        return out

    return watched


def _check(again: Tensor, out: Tensor) -> None:
    """The recomputed weights must give the layer's output, to the precision of bf16."""
    error, scale = float((again - out).abs().max()), float(out.abs().max())
    if not error <= 0.02 * scale:
        raise RuntimeError(f"attention is not the softmax that was recomputed: outputs differ by {error:.3g}")
