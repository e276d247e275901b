"""What a study looks at in each model, before its first step and after its last, as a few numbers."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from seedbed.analysis.weights import weight_rows
from seedbed.data.split import Batch
from seedbed.data.store import Store
from seedbed.eval.heldout import evenly
from seedbed.facts.table import parameter_facts
from seedbed.measure.evaluating import evaluating
from seedbed.measure.residual import residual_report
from seedbed.measure.rows import component_table, matrix_row, profile_table
from seedbed.measure.sink import sink_report
from seedbed.model import Decoder
from seedbed.train.objective import token_losses

SEQUENCES = 16
"""Held-out sequences that are looked at, evenly spread; the same ones for all runs on a store."""


def observe(model: Decoder, store: Store, what: Sequence[str]) -> dict[str, Any]:
    """JSON values by name: those of :data:`LOOKS` that ``what`` names."""
    split = store.split("heldout")
    batch = split.windows(evenly(len(split), SEQUENCES))
    return {name: LOOKS[name](model, batch) for name in what}


def _residual(model: Decoder, batch: Batch) -> dict[str, Any]:
    """Residual flow r = ||h_L - e|| / ||e|| (S0 section 2.4), and each layer's branches over the stream they join."""
    report = residual_report(model, batch.ids, batch.doc_ids, batch.positions)
    return {"flow": report.flow, "embed_rms": report.embed_rms, "layers": [asdict(layer) for layer in report.layers]}


def _masking(model: Decoder, batch: Batch) -> dict[str, Any]:
    """Masking ratio m = eps / (mean square + eps) of each norm of the stream (S0 section 2.1): {name: m}."""
    report = residual_report(model, batch.ids, batch.doc_ids, batch.positions)
    return {norm.name: norm.masking for norm in report.norms}


def _sink(model: Decoder, batch: Batch) -> dict[str, Any]:
    """Sink scores (S0 eq. 5): their mean, the largest layer's, the share of heads above 0.3, that of uniform attention,
    which compares with these at the same length alone."""
    report = sink_report(model, batch.ids, batch.doc_ids, batch.positions)
    layers = report.layers
    return {
        "mean": sum(layers) / len(layers), "largest_layer": max(layers), "share_above": report.share_above(),
        "uniform": report.uniform, "length": report.length,
    }  # fmt: skip


def _weights(model: Decoder, batch: Batch) -> list[dict[str, Any]]:
    """Medians over the matrices of each component, with the Gaussian's beside them (science of S0, S1, S2)."""
    rows = weight_rows(model.state_dict().items(), parameter_facts(model))
    return [asdict(row) for row in component_table(rows)]


def _profiles(model: Decoder, batch: Batch) -> list[dict[str, Any]]:
    """Each component layer by layer (S2, figures 4 and 5): means over its matrices there."""
    facts = parameter_facts(model)
    depths = {fact.layer: fact.depth for fact in facts}
    rows = weight_rows(model.state_dict().items(), facts)
    return [asdict(row) for row in profile_table([matrix_row(row, depths[row.layer]) for row in rows])]


def _token_losses(model: Decoder, batch: Batch) -> list[list[float]]:
    """Loss in nats of each predicted token of the held-out sequences, a list a document: models pair by them."""
    with evaluating(model), torch.no_grad():
        hidden = model(batch.ids, batch.doc_ids, hidden=True, positions=batch.positions)  # [B, T, D]
        losses: Tensor = token_losses(hidden, model.head_weight, batch.targets)  # [B, T], 0 if masked
    found = []
    for row, documents, targets in zip(losses, batch.doc_ids, batch.targets, strict=True):
        for document in documents.unique_consecutive():
            kept = (documents == document) & (targets >= 0)
            if kept.any():
                found.append([round(float(loss), 5) for loss in row[kept]])
    return found


LOOKS: dict[str, Callable[[Decoder, Batch], Any]] = {
    "residual": _residual,
    "masking": _masking,
    "sink": _sink,
    "weights": _weights,
    "profiles": _profiles,
    "token_losses": _token_losses,
}
