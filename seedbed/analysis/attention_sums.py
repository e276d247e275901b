"""From sums over batches to rows, and intervals over documents.

A batch's sums of a layer are JSON values: `documents` [B] (sink score, mean over heads), `sink`, `entropy` and
`elsewhere` [H], `uniform_sink`, `uniform_entropy`, `places` and `uniform_places` [P]. N documents of all batches.
"""

from collections.abc import Sequence
from statistics import fmean as mean
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from seedbed.measure.gains import LEAST_DOCUMENTS
from seedbed.report.attention_rows import THRESHOLD, HeadRow, LayerRow, PlaceRow

RESAMPLES = 1000
OF_HEADS = ("sink", "entropy", "elsewhere")


def interval(sums: np.ndarray, queries: np.ndarray) -> tuple[float | None, float | None]:
    """95 % of Σ sums / Σ queries, both [N]: percentiles over 1,000 resamples of documents; (None, None)
    of fewer than LEAST_DOCUMENTS, which say too little about others."""
    if len(sums) < LEAST_DOCUMENTS:
        return None, None
    found = bootstrap(
        (sums, queries),
        lambda sums, queries, axis: sums.sum(axis) / queries.sum(axis),
        n_resamples=RESAMPLES,
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def layer_row(label: str, layer: int, parts: Sequence[dict[str, Any]], queries: np.ndarray) -> LayerRow:
    """Means of a layer from the sums of all batches and the number of queries of each document [N]."""
    rows = head_rows(label, layer, parts, queries)
    low, high = interval(joined(parts, "documents"), queries)
    return LayerRow(
        checkpoint=label,
        layer=layer,
        heads=len(rows),
        sink=mean([row.sink for row in rows]),
        sink_low=low,
        sink_high=high,
        above=mean([float(row.sink > THRESHOLD) for row in rows]),
        uniform_sink=rows[0].uniform_sink,
        entropy=mean([row.entropy for row in rows]),
        uniform_entropy=float(_total(parts, "uniform_entropy") / queries.sum()),
        entropy_share=mean([row.entropy_share for row in rows]),
        elsewhere=mean([row.elsewhere for row in rows]),
    )


def head_rows(label: str, layer: int, parts: Sequence[dict[str, Any]], queries: np.ndarray) -> list[HeadRow]:
    """Means of each of its heads."""
    total = queries.sum()
    uniform, most = (float(_total(parts, name) / total) for name in ("uniform_sink", "uniform_entropy"))
    sink, entropy, elsewhere = ((_total(parts, name) / total).tolist() for name in OF_HEADS)
    return [
        HeadRow(label, layer, head, sink[head], uniform, entropy[head], entropy[head] / most, elsewhere[head])
        for head in range(len(sink))
    ]


def place_rows(label: str, layer: int, parts: Sequence[dict[str, Any]], late: int) -> list[PlaceRow]:
    """Means over its heads and so many queries that see all of these places; none where no document is long enough."""
    weights, uniform = (_total(parts, name).tolist() for name in ("places", "uniform_places"))
    return [
        PlaceRow(label, layer, place, weights[place] / late, uniform[place] / late)
        for place in range(len(weights) if late else 0)
    ]


def _total(parts: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.sum([part[name] for part in parts], axis=0)


def joined(parts: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """What batches have for each of their documents, [N]."""
    return np.concatenate([part[name] for part in parts])
