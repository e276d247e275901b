"""One run of a study, in a process of its own: train, observe, write down how it ended."""

import resource
import shutil
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from seedbed.analysis.run import versions
from seedbed.config import Config
from seedbed.config.load import from_tree
from seedbed.data.store import Store
from seedbed.errors import GuardStop
from seedbed.files.atomic import folder_damage
from seedbed.measure.trajectory import MEASURES, averaged
from seedbed.study.evaluate import PREFIX, Evaluate, answers
from seedbed.study.observe import observe
from seedbed.study.outcome import FILE, Outcome, Status, settled, unobserved, write_outcome
from seedbed.train.metrics import read_metrics
from seedbed.train.run import write_config
from seedbed.train.setup import checkpoint_of, initial_model, load_weights

Train = Callable[[Config], Any]
"""Trains a configuration in its ``run.dir`` to its end, from where that stands: seedbed.api.fit without a page."""


@dataclass(frozen=True)
class Task:
    """What an engine has to do for a run; plain values, so that it can be sent to another machine."""

    key: str
    name: str
    folder: str
    config: dict[str, Any]
    looks: tuple[str, ...]
    """What is observed, by name."""
    evaluate: dict[str, Any] | None
    """The fields of Evaluate, whose name is among the looks where it is asked."""
    trunk: tuple[str, int] | None
    """Folder of the run to branch off, and after which step."""
    threads: int
    train: Train


def work(task: Task) -> None:
    """Do a task that this process has claimed: what of it is not done yet, which may be observation alone. Its outcome,
    finished or diverged, stands in its folder when this returns.

    Raises what is not the run's own end: a signal, a full disk, our own mistakes.
    """
    torch.set_num_threads(task.threads)
    began, folder = time.perf_counter(), Path(task.folder)
    if (known := settled(folder)) is not None:
        if missing := unobserved(known, task.looks):
            found = observed(from_tree(task.config, task.name), folder, missing, task.evaluate)
            write_outcome(
                folder, replace(known, before=known.before | found["before"], after=known.after | found["after"])
            )
        return
    (folder / FILE).unlink(missing_ok=True)
    with suppress(OSError):  # of a run that failed before its first file: it may still branch off
        folder.rmdir()
    config = from_tree(task.config | {"run": task.config["run"] | {"dir": task.folder}}, task.name)
    branched = None if task.trunk is None else _branch(Path(task.trunk[0]), task.trunk[1], folder, config)
    status: Status
    try:
        task.train(config)
    except GuardStop as stop:
        status, reason = "diverged", str(stop).partition("; ")[0]  # the rest is advice for a run of its own
    else:
        status, reason = "finished", None
    found = gathered(folder)
    if status == "finished":
        found |= observed(config, folder, task.looks, task.evaluate)
    else:  # its last evaluation is of weights on their way to the end, not of a result
        found |= {"nats_per_token": None, "bits_per_byte": None}
    outcome = Outcome(
        key=task.key, status=status, reason=reason, threads=task.threads, versions=versions(), branched=branched,
        wall_s=time.perf_counter() - began, peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, **found,
    )  # fmt: skip
    write_outcome(folder, outcome)


def gathered(folder: Path) -> dict[str, Any]:
    """What the metrics of a run say of it, as fields of its outcome."""
    rows = read_metrics(folder)
    trained = [row for row in rows if row["kind"] == "train"]
    evaluated = [row for row in rows if row["kind"] == "eval"]
    curve, norms, last = [], [], 0
    for row in evaluated:
        number = bisect_right(trained, row["step"], key=itemgetter("step"))  # a skipped step has no row and no tokens
        tokens = trained[number - 1]["tokens"] if number else 0
        curve.append((tokens, row["nats_per_token"]))
        if span := [update["grad_norm"] for update in trained[last:number]]:
            norms.append((tokens, statistics.median(span), max(span)))
        last = number
    end = evaluated[-1] if evaluated else {}
    return {
        "nats_per_token": end.get("nats_per_token"),
        "bits_per_byte": end.get("bits_per_byte"),
        "steps": trained[-1]["step"] if trained else 0,
        "tokens": trained[-1]["tokens"] if trained else 0,
        "train_s": trained[-1]["seconds"] if trained else 0.0,
        "curve": curve,
        "gradient_norms": norms,
        "weights": [(row["tokens"], _by_role(row["components"])) for row in rows if row["kind"] == "weights"],
    }


def _by_role(components: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a role from one a role and layer (``attn.q/0``): medians over layers, as what is observed has them, and all
    problems; None where a layer has no number."""
    layers: dict[str, list[dict[str, Any]]] = {}
    for name, measured in components.items():
        layers.setdefault(name.partition("/")[0], []).append(measured)
    rows = []
    for role, each in layers.items():
        means = averaged(each)
        medians = {name: statistics.median(one[name] for one in each) for name in MEASURES if means[name] is not None}
        rows.append({"role": role, **means, **medians})
    return rows


def observed(
    config: Config, folder: Path, looks: Sequence[str], evaluate: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """``before`` and ``after`` of the run in ``folder``, as fields of its outcome; it is evaluated after alone."""
    before, after = {}, {}
    if not looks:
        return {"before": before, "after": after}
    checkpoint = checkpoint_of(folder)
    if what := [look for look in looks if not look.startswith(PREFIX)]:
        assert config.data.store is not None
        store, (model, _) = Store(config.data.store), initial_model(config)
        before = observe(model, store, what)
        load_weights(model, checkpoint)
        after = observe(model, store, what)
    for look in (look for look in looks if look.startswith(PREFIX)):
        after[look] = answers(Evaluate(**evaluate or {}), checkpoint, config.model.max_seq_len)
    return {"before": before, "after": after}


def _branch(trunk: Path, step: int, folder: Path, config: Config) -> str | None:
    """Put the trunk's checkpoint after ``step`` into the new run ``folder``, which then goes on from there as if it had
    made those steps itself. The key of the trunk; None where the run does not branch off, since the trunk has no such
    checkpoint, whole.
    """
    checkpoint, marker = trunk / "checkpoints" / f"step_{step:08d}", folder / "branched"
    if folder.exists():
        return marker.read_text(encoding="utf-8") if marker.exists() else None
    if not checkpoint.is_dir() or folder_damage(checkpoint) is not None:
        return None
    aside = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(checkpoint, aside / "checkpoints" / checkpoint.name)
    for name in ("metrics.jsonl", "receipt.json", "initial.json"):
        shutil.copy2(trunk / name, aside / name)
    write_config(aside, config)
    (aside / marker.name).write_text(trunk.name, encoding="utf-8")
    aside.rename(folder)
    return trunk.name
