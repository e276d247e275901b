"""How did a run go? Gathers what its page shows: curves, weights and sinks before and after, a sample."""

import json
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from seedbed.analysis.weights import affordable, weight_rows
from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.files.atomic import write_atomic
from seedbed.measure.rows import WeightRow
from seedbed.measure.sink import SinkReport, sink_report
from seedbed.model import Decoder
from seedbed.report.page import RunReport, run_page
from seedbed.train.metrics import read_metrics

PAGE = "report.html"
INITIAL = "initial.json"
SINK_SEQUENCES = 4
SINK_BUDGET = 2e12
"""Parameters times tokens that are read for sinks, a minute or two of one core (choice); one sequence in any case."""


@dataclass(frozen=True)
class Snapshot:
    """What is measured of a model at one moment of its run."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")  # a singular matrix has an infinite condition number

    weights: list[WeightRow]
    sink: SinkReport | None  # None where nothing is held out


_SNAPSHOT = TypeAdapter(Snapshot)


def snapshot(model: Decoder, store: Store) -> Snapshot:
    """Measure the model as it is now: its matrices, and the sinks on the first held-out sequences.

    All ranks wait meanwhile, so that of a large model some matrices and sequences stand for all.
    """
    chosen = affordable(parameter_facts(model))
    names = {name for fact in chosen for name in (fact.name, *fact.tied)}
    state = ((name, tensor) for name, tensor in model.state_dict().items() if name in names)
    return Snapshot(weight_rows(state, chosen), _sink(model, store))


def unmeasured(model: Decoder) -> str:
    """Which matrices a snapshot leaves out, in words; empty where it has all."""
    facts = parameter_facts(model)
    chosen = affordable(facts)
    outside = [fact.name for fact in facts if fact.is_matrix and fact.layer is None and fact not in chosen]
    layers = sorted({fact.layer for fact in chosen if fact.layer is not None})
    said = [] if len(layers) == len(model.layers) else [f"all layers but {', '.join(map(str, layers))}"]
    return " and ".join([*said, *outside])


def write_snapshot(run_dir: Path, before: Snapshot) -> None:
    """Keep what the model was before its first step, for the page at the end."""
    write_atomic(run_dir / INITIAL, _SNAPSHOT.dump_json(before, indent=1))


def read_snapshot(run_dir: Path) -> Snapshot:
    """What a run was before its first step. Raises InputError where that is missing or damaged."""
    path = run_dir / INITIAL
    try:
        return _SNAPSHOT.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: missing; copy the run's folder again") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: damaged ({place + ': ' if place else ''}{first['msg']}); copy the run's folder again"
        ) from None


def write_page(run_dir: Path, model: Decoder, config: Config, store: Store, sample: str) -> Path:
    """Write ``report.html`` of a run that ended with ``model``; returns its path."""
    before, after = read_snapshot(run_dir), snapshot(model, store)
    report = RunReport(
        name=str(run_dir),
        config=config.dump(),
        metrics=read_metrics(run_dir),
        receipt=json.loads((run_dir / "receipt.json").read_text(encoding="utf-8")),
        versions=versions(),
        data=store_summary(store),
        weights_before=before.weights,
        weights_after=after.weights,
        sink_before=before.sink,
        sink_after=after.sink,
        sample=sample,
        unmeasured=unmeasured(model),
        facts=[fact for fact in parameter_facts(model) if fact.is_matrix],
    )
    path = run_dir / PAGE
    write_atomic(path, run_page(report))
    return path


def versions() -> dict[str, str]:
    """What the numbers of a page may depend on; of optional packages those that are installed."""
    packages = {name: version(name) for name in ("seedbed", "torch", "numpy", "scipy", "tokenizers")}
    for name in ("transformers", "gguf"):
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {"python": platform.python_version(), "platform": platform.platform(), **packages}


def store_summary(store: Store) -> dict[str, Any]:
    """Sizes of the store that a run was trained on."""
    header = store.header
    summary = {
        "folder": str(store.path),
        "tokenizer": header["tokenizer_hash"][:12],
        "vocabulary": header["vocab_size"],
    }
    for name, part in header["streams"].items():
        summary |= {f"{name} {key}": part[key] for key in ("documents", "tokens", "bytes")}
    return summary


def _sink(model: Decoder, store: Store) -> SinkReport | None:
    split = store.split("heldout")
    if len(split) == 0:
        return None
    size = sum(parameter.numel() for parameter in model.parameters()) * split.seq_len
    count = min(SINK_SEQUENCES, max(1, int(SINK_BUDGET / size)))
    batch = split.windows(range(min(count, len(split))))
    device = next(model.parameters()).device
    return sink_report(model, *(x.to(device) for x in (batch.ids, batch.doc_ids, batch.positions)))
