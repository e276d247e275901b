"""A run of a study: which arm it is of, its configuration, and the key that is its name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, sha256
from seedbed.init.reuse import copied_files
from seedbed.study.spec import ONE_SIZE
from seedbed.train.run import flat
from seedbed.train.setup import checkpoint_of

ELSEWHERE = (
    "run.dir", "data.store", "data.prefetch", "train.checkpoint_every", "train.keep_checkpoints", "train.keep_best",
    "train.async_checkpoints", "train.tensorboard", "train.log_every", "parallel.timeout_s",
)  # fmt: skip
"""Fields that decide where a run lies and how it is kept, not what comes out of it."""

LATER = {"model.norm_placement": "pre", "model.rope_scaling": None, "optim.muon.embeddings": "adamw"}
"""Fields that earlier releases did not have, with what their runs did: at that value they are not part of a key."""

RENAMED = {"model.attention.qk_norm": {"none": False, "head": True}}
"""Values of a field, as earlier releases had them."""

Stage = Literal["tune", "compare"]


@dataclass(frozen=True)
class Cell:
    """An arm at a size."""

    levels: tuple[tuple[str, str], ...]
    """(axis, level) of each axis."""
    size: str

    @property
    def arm(self) -> str:
        return ", ".join(level for _, level in self.levels)

    @property
    def name(self) -> str:
        return self.arm if self.size == ONE_SIZE else f"{self.arm}, {self.size}"


@dataclass(frozen=True)
class Trial:
    """A run of a study."""

    cell: Cell
    stage: Stage
    share: float
    """Of the budget."""
    seed: int
    tuned: Mapping[str, float]
    """What was chosen by path, or is tried."""
    config: Config
    """Resolved; its run.dir means nothing."""
    key: str
    """A hash of everything that decides the outcome: the run's name."""
    parameters: int
    non_embedding: int
    tokens: int
    """Of all its steps, padding included."""
    flops: float
    """Of the steps that it makes itself."""
    trunk: tuple[str, int] | None
    """The key of the run that this one branches off, and after which step."""

    @property
    def name(self) -> str:
        """What it is called where people read it."""
        tuned = "".join(f", {path}={value:g}" for path, value in self.tuned.items())
        share = "" if self.share == 1 else f", {self.share:g} of the budget"
        return f"{'tuning ' if self.stage == 'tune' else ''}{self.cell.name}, seed {self.seed}{tuned}{share}"

    @property
    def own_steps(self) -> int:
        """Those that it makes itself."""
        return self.config.train.steps - (0 if self.trunk is None else self.trunk[1])


def run_key(config: Config, store: Store) -> str:
    """A hash of everything that decides what comes out of a run: its configuration but for ELSEWHERE, the content of
    its store, and that of the files it starts from (train.init_from, init.checkpoint, init.cohort). A run that an
    earlier release could make has the key that it gave. Raises InputError where train.init_from has no weights; a
    checkpoint or cohort that is not there counts by its path.
    """
    told = flat(config.dump())
    values = {
        path: RENAMED.get(path, {}).get(value, value) if isinstance(value, str) else value
        for path, value in told.items()
        if path not in ELSEWHERE and not (path in LATER and value == LATER[path])
    }
    if config.train.init_from is not None:
        values["train.init_from"] = _weights_hash(config.train.init_from)
    for path in ("init.checkpoint", "init.cohort"):
        if values.get(path) is not None:
            values[path] = _files_hash(values[path])
    return hashlib.sha256(json.dumps([values, fingerprints(store)], sort_keys=True).encode()).hexdigest()[:16]


def fingerprints(store: Store) -> dict[str, str]:
    """Of what a run trains on, and of what it is evaluated on."""
    return {name: store.split(name).fingerprint for name in ("train", "heldout")}


@cache
def _files_hash(path: str) -> str | list[str]:
    """Of a file, or of the weights of a checkpoint; ``path`` where neither is there: the run will say so."""
    place = Path(path).expanduser()
    try:
        files = [place] if place.is_file() else copied_files(place)
    except InputError:
        return path
    return [sha256(file) for file in files]


@cache
def _weights_hash(path: str) -> str:
    """Of the list of files and hashes of the checkpoint that ``path`` stands for."""
    return sha256(checkpoint_of(path) / COMMIT)
