"""A run of a study: which arm it is of, its configuration, and the key that is its name."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.files.atomic import COMMIT, sha256
from seedbed.study.spec import ONE_SIZE
from seedbed.train.run import flat
from seedbed.train.setup import checkpoint_of

ELSEWHERE = (
    "run.dir", "data.store", "data.prefetch", "train.checkpoint_every", "train.keep_checkpoints", "train.keep_best",
    "train.async_checkpoints", "train.tensorboard", "train.log_every", "parallel.timeout_s",
)  # fmt: skip
"""Fields that decide where a run lies and how it is kept, not what comes out of it."""

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
    flops: float
    trunk: tuple[str, int] | None
    """The key of the run that this one branches off, and after which step."""


def run_key(config: Config, store: Store) -> str:
    """A hash of everything that decides what comes out of a run: its configuration but for ELSEWHERE, the content of
    its store, and that of the weights it starts from (train.init_from). Raises InputError where there are none.
    """
    values = {path: value for path, value in flat(config.dump()).items() if path not in ELSEWHERE}
    if config.train.init_from is not None:
        values["train.init_from"] = _weights_hash(config.train.init_from)
    return hashlib.sha256(json.dumps([values, fingerprints(store)], sort_keys=True).encode()).hexdigest()[:16]


def fingerprints(store: Store) -> dict[str, str]:
    """Of what a run trains on, and of what it is evaluated on."""
    return {name: store.split(name).fingerprint for name in ("train", "heldout")}


@cache
def _weights_hash(path: str) -> str:
    """Of the list of files and hashes of the checkpoint that ``path`` stands for."""
    return sha256(checkpoint_of(path) / COMMIT)
