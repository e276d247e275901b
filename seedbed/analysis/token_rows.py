"""Losses of two models on the same tokens, made into rows.

Shapes: N predicted tokens of all texts, in their order; D documents; V vocabulary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seedbed.analysis.token_texts import pieces
from seedbed.data.texts import Text
from seedbed.data.tokenizer import Tokenizer
from seedbed.measure.gains import Interval, bootstrap_means, document_sums, probability_gain
from seedbed.measure.losses import bits_per_byte
from seedbed.measure.table import Rows
from seedbed.report.tokens_rows import (
    DocumentRow,
    GroupRow,
    HistogramRow,
    Mean,
    ShownPiece,
    ShownText,
    ShownToken,
    TokenRow,
)

LITTLE = 0.1
"""A probability gain within +-LITTLE: odds between the two models of at most 1.22."""
TOP = 20
SHOWN_TOKENS = 400
"""Of a text on the page, at most."""


@dataclass(frozen=True)
class Scores:
    """Of each predicted token of a text, [n]; ranks (1: the likeliest) of texts that are shown alone."""

    a: np.ndarray
    b: np.ndarray
    rank_a: np.ndarray | None = None
    rank_b: np.ndarray | None = None


def group_rows(
    loss_a: np.ndarray,
    loss_b: np.ndarray,
    documents: np.ndarray,
    n_bytes: np.ndarray,
    groups: Mapping[str, tuple[Sequence[str], np.ndarray]],
    seed: int,
) -> dict[str, Rows[GroupRow]]:
    """Rows of each kind of group, {kind: (names of groups, which one each token is in [N])}; ``n_bytes`` [N] are those
    of the tokens. The resamples are the same for all.
    """
    gain, p_gain = loss_a - loss_b, probability_gain(loss_a, loss_b)
    difficulty, n_documents = (loss_a + loss_b) / 2, int(documents[-1]) + 1
    found, sums, counts, sizes = [], [], [], []
    for kind, (names, numbers) in groups.items():
        shape = (n_documents, len(names))
        counts.append(document_sums(np.ones_like(gain), documents, numbers, shape))
        sizes.append(document_sums(n_bytes, documents, numbers, shape))
        sums.append([document_sums(values, documents, numbers, shape) for values in (gain, p_gain)])
        found += [(kind, name, numbers == number) for number, name in enumerate(names)]
    count, bytes_of = np.concatenate(counts, axis=1), np.concatenate(sizes, axis=1)  # [D, C]
    gains, p_gains = (np.concatenate(one, axis=1) for one in zip(*sums, strict=True))  # [D, C]
    intervals = [bootstrap_means(one, count, seed) for one in (gains, p_gains)]
    of_bits = bootstrap_means(gains / math.log(2), bytes_of, seed)
    rows: dict[str, Rows[GroupRow]] = {kind: Rows() for kind in groups}
    for column, (kind, name, of) in enumerate(found):
        a, b, size = float(loss_a[of].sum()), float(loss_b[of].sum()), int(n_bytes[of].sum())
        means = [
            _mean(float(values[of].mean()), interval, column)
            for values, interval in zip((gain, p_gain), intervals, strict=True)
        ]
        rows[kind].append(
            GroupRow(
                kind=kind,
                name=name,
                documents=int((count[:, column] > 0).sum()),
                tokens=int(of.sum()),
                bytes=size,
                lowest=float(difficulty[of].min()),
                highest=float(difficulty[of].max()),
                loss_a=a / int(of.sum()),
                loss_b=b / int(of.sum()),
                bits_per_byte_a=bits_per_byte(a, size) if size else None,
                bits_per_byte_b=bits_per_byte(b, size) if size else None,
                bits_per_byte_gain=_mean((a - b) / (size * math.log(2)), of_bits, column) if size else None,
                gain=means[0],
                probability_gain=means[1],
                better=float((gain[of] > 0).mean()),
                worse=float((gain[of] < 0).mean()),
                little=float((np.abs(p_gain[of]) <= LITTLE).mean()),
            )
        )
    return rows


def _mean(value: float, interval: Interval, column: int) -> Mean:
    low, high = (None if np.isnan(bound[column]) else float(bound[column]) for bound in interval)
    return Mean(value, low, high)


def document_rows(
    texts: Sequence[Text], loss_a: np.ndarray, loss_b: np.ndarray, documents: np.ndarray
) -> Rows[DocumentRow]:
    """Means over each document, in the order of ``texts``."""
    gain = loss_a - loss_b
    sums = (loss_a, loss_b, gain, probability_gain(loss_a, loss_b), gain > 0)
    tokens = np.bincount(documents)
    means = np.stack([np.bincount(documents, weights=values) / tokens for values in sums], axis=1).tolist()  # [D, 5]
    rows = zip(texts, tokens.tolist(), means, strict=True)
    return Rows(DocumentRow(text.id, text.domain, text.lang, n, text.cut, *values) for text, n, values in rows)


def token_rows(
    loss_a: np.ndarray,
    loss_b: np.ndarray,
    ids: np.ndarray,
    texts: Sequence[Text],
    documents: np.ndarray,
    tokenizer: Tokenizer,
    lengths: np.ndarray,
) -> tuple[Rows[TokenRow], Rows[TokenRow]]:
    """The tokens of the vocabulary with the largest gain, summed over all their occurrences ``ids`` [N], and those with
    the largest loss; TOP at most.
    """
    distinct, first, numbers, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    sums = [np.bincount(numbers, weights=values) for values in (loss_a, loss_b, loss_a - loss_b)]
    held = np.unique(numbers * len(texts) + documents) // len(texts)  # a token once for each document that has it
    n_documents = np.bincount(held)
    begins = np.searchsorted(documents, np.arange(len(texts)))  # of each document in [N]

    def row(place: int) -> TokenRow:
        document = int(documents[first[place]])
        at = int(first[place] - begins[document]) + 1
        shown = pieces(texts[document], tokenizer, lengths, at + 1)
        name = next(own for _, tokens in shown for where, own in tokens if where == at)
        a, b, total = (float(values[place]) for values in sums)
        count = int(counts[place])
        return TokenRow(
            int(distinct[place]), name, count, int(n_documents[place]), a / count, b / count, total / count, total
        )

    order = np.argsort(-sums[2], kind="stable")
    gaining = [place for place in order[:TOP] if sums[2][place] > 0]
    losing = [place for place in order[::-1][:TOP] if sums[2][place] < 0]
    return Rows(map(row, gaining)), Rows(map(row, losing))


def histogram(values: np.ndarray, edges: np.ndarray) -> Rows[HistogramRow]:
    """Counts between ``edges``; values beyond the outermost ones count in the last bar on their side."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    bars = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    return Rows(HistogramRow(*bar) for bar in bars)


def shown_text(text: Text, scores: Scores, tokenizer: Tokenizer, lengths: np.ndarray) -> ShownText:
    """``text`` with its scores, cut to SHOWN_TOKENS."""
    assert scores.rank_a is not None and scores.rank_b is not None
    columns = [array.tolist() for array in (scores.a, scores.b, scores.rank_a, scores.rank_b)]
    measured = [(None, None, None, None), *zip(*columns, strict=True)]  # nothing predicts the first
    end = min(len(text.ids), SHOWN_TOKENS)
    found = [
        ShownPiece(whole, [ShownToken(text.ids[place], own, *measured[place]) for place, own in tokens])
        for whole, tokens in pieces(text, tokenizer, lengths, end)
    ]
    gain = float((scores.a.astype(np.float64) - scores.b).mean())
    return ShownText(text.id, text.domain, text.lang, found, len(text.ids) - end + text.cut, gain)
