"""How do the weights of a run move? Rank, alignment and scale of every matrix over its checkpoints (S0 figs. 4-8)."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.run import read_snapshot
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import part_of
from seedbed.files.atomic import COMMIT, folder_damage, listed
from seedbed.files.parts import Parts
from seedbed.files.safetensors import Tensors, weight_files
from seedbed.files.steps import step_folders
from seedbed.hub.checkpoints import names_of
from seedbed.measure.spectra import gaussian_stats, matrix_stats
from seedbed.measure.table import Rows
from seedbed.measure.trajectory import (
    Reference,
    TrajectoryRow,
    initial,
    left_out,
    measures,
    recorded,
    references,
    turns,
)
from seedbed.report.dynamics_rows import Dynamics, RunFacts
from seedbed.train.checkpoint import read_state
from seedbed.train.metrics import METRICS, read_metrics
from seedbed.train.run import read_config, run_around

MOST_RUNS = 8  # lines that a panel can hold apart


def analyze(paths: Sequence[Path], parts: Parts, tell: Callable[[str], None]) -> Dynamics:
    """Measure every matrix at every whole checkpoint of the runs in ``paths``, one matrix in memory at a time.

    Step 0 is from what a run measured before its first step, and steps between checkpoints from what it recorded
    (train.weights_every); where there are both, the checkpoint counts. What is damaged or unfinished is passed over
    with a line. Raises InputError for what is no run, a run without any step to show, one that is given twice, and
    more than MOST_RUNS.
    """
    if len(paths) > MOST_RUNS:
        raise InputError(f"{len(paths)} runs: a figure holds {MOST_RUNS} apart; name fewer")
    names = names_of(paths)
    configs = [_config(path) for path in paths]
    runs, rows, references = Rows[RunFacts](), Rows[TrajectoryRow](), Rows[Reference]()
    for name, path, config in zip(names, paths, configs, strict=True):
        facts = [fact for fact in meta_facts(config.model) if fact.is_matrix]
        told, own = _run(name, path, config, facts, parts, tell)
        runs.append(told)
        rows += own
        references += _references(name, facts, parts, tell)
    return Dynamics(runs, rows, references, Rows(turns(rows, references)))


def _config(path: Path) -> Config:
    if (path / COMMIT).exists() or run_around(path) is not None:
        raise InputError(f"{path}: is a checkpoint, or lies among those of a run; name the run's folder")
    return read_config(path)


def _run(
    name: str, path: Path, config: Config, facts: Sequence[ParameterFact], parts: Parts, tell: Callable[[str], None]
) -> tuple[RunFacts, list[TrajectoryRow]]:
    passed_over, digests, rows = [], [], []
    try:
        rows = initial(name, read_snapshot(path).weights)
    except InputError as error:
        passed_over.append(f"step 0: {error}")
    begun = bool(rows)
    folders = step_folders(path)[::-1]
    steps = set()
    for number, folder in enumerate(folders, 1):
        place = f"{name}: checkpoint {number} of {len(folders)}"
        tell(place)
        try:
            digest, own = _checkpoint(name, folder, facts, parts, lambda said, place=place: tell(f"{place}, {said}"))
        except (InputError, OSError) as error:
            passed_over.append(f"{folder.name} passed over: {error}")
            continue
        digests.append(digest)
        rows += own
        steps.add(own[0].step)
    between = []
    for row in read_metrics(path):
        if row["kind"] == "weights" and row["step"] not in steps:
            try:
                between.append(recorded(name, row))
            except (KeyError, TypeError, AttributeError, ValueError):
                passed_over.append(f"step {row['step']}: the row of kind weights in {METRICS} is damaged")
    if not steps and not between:
        raise InputError(
            f"{path}: no step can be shown: {'; '.join(passed_over[:3]) or 'it has no checkpoint yet'}; train it first"
        )
    rows += [row for own in between for row in own]
    rows.sort(key=lambda row: row.step)  # stable: within a step as the model has them
    passed_over += left_out(rows)
    told = RunFacts(
        name=name,
        path=str(path),
        law=_law(config),
        optimizer=config.optim.name,
        learning_rate=config.optim.lr,
        seed=config.run.seed,
        steps=config.train.steps,
        initial=begun,
        checkpoints=len(steps),
        recorded=len(between),
        passed_over=passed_over,
        weights_sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
    )
    return told, rows


def _law(config: Config) -> str:
    if config.train.init_from is not None:
        return f"weights of {config.train.init_from}"
    options = [f"{key} {value}" for key, value in config.init.options.items() if value is not None]
    return ", ".join([config.init.law, *options])


def _checkpoint(
    name: str, folder: Path, facts: Sequence[ParameterFact], parts: Parts, tell: Callable[[str], None]
) -> tuple[str, list[TrajectoryRow]]:
    """A hash of the weights in ``folder``, and a row for each matrix. Raises InputError where it is not whole."""
    damage = folder_damage(folder, lambda file: not file.startswith("optimizer"))
    if damage is not None:
        raise InputError(damage)
    state = read_state(folder)
    hashes = [digest for file, (_, digest) in sorted(listed(folder).items()) if file.startswith("model")]
    weights = hashlib.sha256("".join(hashes).encode()).hexdigest()
    tensors, rows = Tensors(weight_files(folder)), []
    for fact in facts:
        if fact.name not in tensors or tensors.shape(fact.name) != fact.stored_shape:
            raise InputError(f"{fact.name} is missing or of another shape than the run's configuration says")
        read = cache(lambda fact=fact: tensors[fact.name])  # not at all where all its parts were measured before
        for part in fact.parts():

            def make(part: ParameterFact = part, read: Callable[[], Tensor] = read) -> dict[str, Any]:
                tell(part.name)
                return measures(matrix_stats(part_of(read(), part)))

            found = parts.get(f"{weights} {part}", make)
            rows.append(
                TrajectoryRow(name, state["step"], state["tokens"], "checkpoint", part.role, part.layer, **found)
            )
    return weights, rows


def _references(
    name: str, facts: Sequence[ParameterFact], parts: Parts, tell: Callable[[str], None]
) -> list[Reference]:
    """What Gaussian matrices of the shapes of each component have."""

    def gaussian(m: int, n: int) -> dict[str, Any]:
        tell(f"{name}: a Gaussian matrix of {m} x {n}")
        return parts.get(f"gaussian {m} {n}", lambda: measures(gaussian_stats(m, n)))

    return references(name, facts, gaussian)
