"""How did a run go? Gathers what its page shows: curves, weights and sinks before and after, a sample."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from seedbed.analysis.weights import weight_rows
from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.facts.table import parameter_facts
from seedbed.files.atomic import write_atomic
from seedbed.measure.rows import WeightRow
from seedbed.measure.sink import SinkReport, sink_report
from seedbed.model import Decoder
from seedbed.report.page import RunReport, run_page
from seedbed.train.setup import initial_model

PAGE = "report.html"
SINK_SEQUENCES = 4


def write_page(
    run_dir: Path, config: Config, store: Store, model: Decoder, metrics: list[dict[str, Any]], sample: str
) -> Path:
    """Write ``report.html`` of a run whose trained model is ``model``; returns its path.

    The weights before training are drawn again from the configuration, which gives the same bits.
    """
    before, receipt = initial_model(config)
    report = RunReport(
        name=str(run_dir),
        config=config.dump(),
        metrics=metrics,
        receipt=receipt,
        versions=versions(),
        data=store_summary(store),
        weights_before=_weights(before),
        weights_after=_weights(model),
        sink_before=_sink(before, store),
        sink_after=_sink(model, store),
        sample=sample,
    )
    path = run_dir / PAGE
    write_atomic(path, run_page(report))
    return path


def versions() -> dict[str, str]:
    """What the numbers of a page may depend on."""
    packages = {name: version(name) for name in ("seedbed", "torch", "numpy", "tokenizers")}
    return {"python": platform.python_version(), "platform": platform.platform(), **packages}


def store_summary(store: Store) -> dict[str, Any]:
    """Sizes of the store that a run was trained on."""
    header = store.header
    summary = {
        "folder": str(store.path),
        "tokenizer": header["tokenizer_hash"][:12],
        "vocabulary": header["vocab_size"],
    }
    for name, part in header["splits"].items():
        summary |= {f"{name} {key}": part[key] for key in ("documents", "tokens", "bytes")}
    return summary


def _weights(model: Decoder) -> list[WeightRow]:
    state = ((name, tensor.cpu()) for name, tensor in model.state_dict().items())
    return weight_rows(state, parameter_facts(model))


def _sink(model: Decoder, store: Store) -> SinkReport:
    split = store.split("heldout")
    batch = split.windows(range(min(SINK_SEQUENCES, len(split))))
    device = next(model.parameters()).device
    with torch.no_grad():
        return sink_report(model, batch.ids.to(device), batch.doc_ids.to(device))
