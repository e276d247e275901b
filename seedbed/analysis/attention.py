"""Where does attention go? Sink scores and entropies of every head of ours and of Transformers models.

Shapes: N documents, L layers, H heads.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean as mean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seedbed.analysis.attention_sums import OF_HEADS, head_rows, interval, joined, layer_row, place_rows
from seedbed.analysis.chosen_texts import texts_for
from seedbed.data.batching import batches, padded
from seedbed.data.texts import Text, Texts
from seedbed.errors import InputError
from seedbed.files.jsonl import OnBad
from seedbed.files.parts import Parts
from seedbed.hub.identity import identity
from seedbed.hub.models import LanguageModel, common_length, open_model
from seedbed.measure.attention import AttentionSums, NotExplainedError
from seedbed.measure.table import Rows
from seedbed.measure.watch import watching
from seedbed.model import Decoder
from seedbed.report.attention_rows import (
    THRESHOLD,
    Attention,
    DifferenceRow,
    HeadRow,
    LayerRow,
    ModelRow,
    UnmeasuredRow,
)

LENGTH = 512
"""Tokens of a document that are read, at most, unless the length is given."""
CHECKPOINTS = 4
BATCH = 2**12
"""Tokens read at once."""
Tell = Callable[[str], None]


def analyze(
    paths: Sequence[Path],
    data: Sequence[Path],
    parts: Parts,
    tell: Tell,
    length: int | None = None,
    documents: int | None = None,
    text_field: str = "text",
    on_bad: OnBad = "strict",
) -> Attention:
    """Measure up to four checkpoints on ``documents`` texts (None: all) of ``data`` in their tokens, cut to ``length``
    (None: 512, or what the shortest of the models reads). Without data, runs read what they hold out.

    Each is opened once, when its turn comes, and one is in memory at a time. Raises InputError for more checkpoints, a
    length that a model does not read, a checkpoint that is none, attends in a way that shows no weights or whose
    weights do not explain a layer's output, and data without a text.
    """
    if len(paths) > CHECKPOINTS:
        raise InputError(
            f"{paths[CHECKPOINTS]}: {len(paths)} checkpoints are given, at most {CHECKPOINTS} are compared"
        )
    length = common_length(paths, length, LENGTH)
    found = Attention(length, Rows(), Rows(), Rows(), Rows(), Rows(), Rows(), {})
    scores: list[_Scores] = []
    for label, path in zip(distinct_names(paths), paths, strict=True):
        tell(f"opens {path}")
        model = None  # the one before goes first
        model = open_model(path)
        _watched(path, model, *torch.zeros(2, 1, 2, dtype=torch.int64))  # whether it can be, before texts are read
        texts = texts_for(path, data, model.tokenizer, length, documents, text_field, on_bad)
        scores.append(_measure(label, path, model, texts, found, parts, tell))
        if len(scores) > 1 and scores[-1].tokens == scores[0].tokens:
            difference = scores[-1].sums - scores[0].sums
            mean = float(difference.sum() / scores[0].queries.sum())
            low, high = interval(difference, scores[0].queries)
            found.differences.append(DifferenceRow(label, found.models[0].checkpoint, mean, low, high))
    return found


class _Scores(NamedTuple):
    """Of each document: the sum of its sink scores over queries, mean over all heads, and the number of its queries."""

    sums: np.ndarray  # [N]
    queries: np.ndarray  # [N]
    tokens: str
    """SHA-256 of what was read."""


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The last names of paths, with as much before them as tells them apart. Raises InputError for one given twice."""
    parts = [path.resolve().parts[1:] for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if parts.count(part) > 1:
            raise InputError(f"{path}: given twice; give each checkpoint once")
    depth = 1
    while depth < max(map(len, parts)) and len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def _measure(
    label: str, path: Path, model: LanguageModel, texts: Texts, found: Attention, parts: Parts, tell: Tell
) -> _Scores:
    """Add the rows of one checkpoint to ``found``."""
    found.skipped[label] = dict(texts.skipped)
    decides = identity(model)
    measured: list[dict[str, Any]] = []
    done = 0
    for batch in batches(texts.texts, BATCH):
        tell(f"{label}: {done:,} of {texts.tokens:,} tokens")
        measured.append(parts.get(f"{decides} {_tokens_sha256(batch)}", lambda batch=batch: _batch(path, model, batch)))
        done += sum(len(text.ids) for text in batch)
    tell(f"{label}: {done:,} of {texts.tokens:,} tokens")

    queries = np.array([n for part in measured for n in part["queries"]])  # [N]
    late = sum(part["late"] for part in measured)
    layers, heads = Rows[LayerRow](), Rows[HeadRow]()
    documents = np.zeros(len(queries))
    for layer in sorted(measured[0]["layers"], key=int):
        of_layer = [part["layers"][layer] for part in measured]
        layers.append(layer_row(label, int(layer), of_layer, queries))
        heads.extend(head_rows(label, int(layer), of_layer, queries))
        found.places.extend(place_rows(label, int(layer), of_layer, late))
        documents += layers[-1].heads * joined(of_layer, "documents")
    types = _layer_types(model)
    for layer, kind in enumerate(types):
        if str(layer) not in measured[0]["layers"]:
            found.unmeasured.append(UnmeasuredRow(label, layer, f"{kind}: has no attention weights"))
    scores = _Scores(documents / len(heads), queries, _tokens_sha256(texts.texts))
    found.layers.extend(layers)
    found.heads.extend(heads)
    low, high = interval(scores.sums, queries)
    found.models.append(
        ModelRow(
            checkpoint=label,
            layers=len(types),
            measured=len(layers),
            heads=len(heads),
            sink=mean([row.sink for row in heads]),
            sink_low=low,
            sink_high=high,
            above=mean([float(row.sink > THRESHOLD) for row in heads]),
            uniform_sink=mean([row.uniform_sink for row in heads]),
            entropy=mean([row.entropy for row in heads]),
            entropy_share=mean([row.entropy_share for row in heads]),
            documents=len(queries),
            full=int((queries == found.length - 1).sum()),
            tokens=texts.tokens,
            cut=texts.cut,
            queries=int(queries.sum()),
            sha256=decides,
            tokens_sha256=scores.tokens,
        )
    )
    return scores


def _watched(path: Path, model: LanguageModel, ids: Tensor, doc_ids: Tensor) -> dict[int, AttentionSums]:
    """The sums of each layer that has attention weights; an InputError where none has."""
    ids, doc_ids = ids.to(model.device), doc_ids.to(model.device)
    try:
        with watching(model.module, doc_ids) as layers:
            model.read(ids, doc_ids)
    except NotExplainedError as error:
        raise InputError(f"{path}: {error}") from None
    if not layers:
        raise InputError(f"{path}: no layer of {type(model.module).__name__} has attention weights")
    return layers


def _batch(path: Path, model: LanguageModel, texts: Sequence[Text]) -> dict[str, Any]:
    """The sums of every layer over texts, one a row: JSON values that add up over batches."""
    layers = _watched(path, model, *padded(texts, 0))
    return {
        "queries": [len(text.ids) - 1 for text in texts],
        "late": int(next(iter(layers.values())).late.sum()),
        "layers": {
            str(layer): {
                "documents": sums.sink.mean(1).tolist(),
                "places": sums.places.mean(1).sum(0).tolist(),
                **{
                    name: getattr(sums, name).sum(0).tolist()
                    for name in (*OF_HEADS, "uniform_sink", "uniform_entropy", "uniform_places")
                },
            }
            for layer, sums in layers.items()
        },
    }


def _layer_types(model: LanguageModel) -> list[str]:
    """What the configuration calls each layer."""
    if isinstance(model.module, Decoder):
        return ["attention"] * len(model.module.layers)
    config: Any = model.module.config
    config = config.get_text_config()
    return list(getattr(config, "layer_types", None) or ["layer"] * config.num_hidden_layers)


def _tokens_sha256(texts: Sequence[Text]) -> str:
    return hashlib.sha256(repr([text.ids for text in texts]).encode()).hexdigest()
