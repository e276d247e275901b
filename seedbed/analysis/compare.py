"""How do the weights of several checkpoints differ, component by component and over depth?"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seedbed.analysis.resources import meta_facts
from seedbed.analysis.run import INITIAL, read_snapshot
from seedbed.analysis.weights import analyze as analyze_weights
from seedbed.errors import InputError
from seedbed.files.atomic import sha256
from seedbed.files.parts import Parts
from seedbed.hub.checkpoints import Checkpoint, fingerprint, open_checkpoint
from seedbed.hub.identity import identity
from seedbed.measure.rows import component_table, matrix_row, profile_table
from seedbed.measure.table import Rows
from seedbed.report.compare_rows import Comparison
from seedbed.report.weights_rows import Weights
from seedbed.train.run import CONFIG, read_config

MOST = 8  # as many as a figure's colours and markers tell apart


@dataclass(frozen=True)
class Source:
    """What is compared: a checkpoint, or what a run kept of its weights before the first step."""

    name: str
    files: dict[str, str]
    identity: str
    opened: Checkpoint | Path


def sources(paths: Sequence[str | Path]) -> list[Source]:
    """What ``paths`` mean: runs, checkpoints of runs, Hugging Face checkpoints, and ``initial.json`` of a run; a run
    alone is compared with its own ``initial.json``.

    Raises InputError for fewer than two or more than MOST, for the same model twice, and for what is no checkpoint.
    """
    places = [Path(path) for path in paths]
    if len(places) == 1:
        (run,) = places
        if not (run / CONFIG).is_file() or not (run / INITIAL).is_file():
            raise InputError(
                f"{run}: one checkpoint, and nothing to compare it with; give two or more, or a run with its {INITIAL}"
            )
        places = [run / INITIAL, run]
    if not 2 <= len(places) <= MOST:
        raise InputError(f"{len(places)} checkpoints: a figure tells {MOST} apart; give 2 to {MOST}")
    found = [
        Source(name, {INITIAL: sha256(place)}, sha256(place), place)
        if place.name == INITIAL and place.is_file()
        else _checkpoint(place, name)
        for place, name in zip(places, _labels(places), strict=True)
    ]
    seen: dict[str, Path] = {}
    for one, place in zip(found, places, strict=True):
        if (other := seen.setdefault(one.identity, place)) is not place:
            raise InputError(f"{other} and {place} are the same weights; give each checkpoint once")
    return found


def analyze(
    found: Sequence[Source], parts: Parts | None = None, tell: Callable[[str], None] | None = None
) -> Comparison:
    """Measure every matrix of each of the `sources`, as `seedbed.analysis.weights` does.

    What a run kept of its initial weights are measures, not weights: such a model has no spectra, densities or cosines.
    """
    models = []
    for number, one in enumerate(found, 1):
        if isinstance(one.opened, Path):
            models.append(_initial(one.name, one.opened))
        else:
            place = f"{one.name} ({number} of {len(found)})"
            models.append(analyze_weights(one.opened, parts, tell and (lambda told, at=place: tell(f"{at}: {told}"))))
    return Comparison(models)


def _checkpoint(path: Path, name: str) -> Source:
    """Of a run the newest whole checkpoint, under the run's name and its step."""
    opened = open_checkpoint(path)
    folder = opened.files[0].parent
    if (path / CONFIG).is_file() and (newest := _step(folder)) is not None and folder.resolve() != path.resolve():
        name = f"{name}, step {newest}"
    opened = replace(opened, name=name)
    return Source(name, fingerprint(opened), identity(opened), opened)


def _initial(name: str, file: Path) -> Weights:
    """What the run in the folder of ``file`` measured before its first step."""
    rows = read_snapshot(file.parent).weights
    facts = meta_facts(read_config(file.parent).model)
    depths = {part.name: part.depth for fact in facts for part in fact.parts() if part.is_matrix}
    unknown = [row.name for row in rows if row.name not in depths]
    if unknown or not rows:
        what = f"has {unknown[0]}, which the run's model has not" if unknown else "has no matrix"
        raise InputError(f"{file}: {what}; give the run's own file")
    matrices = Rows(matrix_row(row, depths[row.name]) for row in rows)
    return Weights(
        name=name,
        layers=max(fact.n_layers for fact in facts),
        parameters=sum(math.prod(fact.shape) for fact in facts),
        files={INITIAL: sha256(file)},
        matrices=matrices,
        components=Rows(component_table(rows)),
        profiles=Rows(profile_table(matrices)),
        unmeasured=len(depths) - len(rows),
    )


def _labels(places: Sequence[Path]) -> list[str]:
    """Short names, and the whole path where two would be the same."""
    short = [_label(place.resolve()) for place in places]
    several = {name for name, times in Counter(short).items() if times > 1}
    return [str(place) if name in several else name for place, name in zip(places, short, strict=True)]


def _label(place: Path) -> str:
    if place.name == INITIAL:
        return f"{place.parent.name}, initialized"
    if place.parent.name == "checkpoints" and (step := _step(place)) is not None:
        return f"{place.parent.parent.name}, step {step}"
    return place.name


def _step(folder: Path) -> int | None:
    """Of a run's checkpoint."""
    number = folder.name.removeprefix("step_")
    return int(number) if number != folder.name and number.isdecimal() else None
