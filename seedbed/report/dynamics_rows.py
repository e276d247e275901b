"""What `seedbed analyze dynamics` finds, as its page shows it."""

from dataclasses import dataclass

from seedbed.measure.table import Rows
from seedbed.measure.trajectory import Reference, TrajectoryRow, TurnRow


@dataclass(frozen=True)
class RunFacts:
    """What a run is, and what of it was measured."""

    name: str
    path: str
    law: str
    optimizer: str
    learning_rate: float
    seed: int
    steps: int
    """That it makes in all."""
    initial: bool
    """Whether its weights before the first step are among the rows."""
    checkpoints: int
    """Whole ones, all measured."""
    recorded: int
    """Steps that the run itself recorded, without those of a checkpoint."""
    passed_over: list[str]
    """A line for each step that could not be read or measured, or that a mean leaves out."""
    weights_sha256: str
    """Of the hashes of the measured checkpoints' weights, in order."""


@dataclass(frozen=True)
class Dynamics:
    runs: Rows[RunFacts]
    rows: Rows[TrajectoryRow]
    references: Rows[Reference]
    turns: Rows[TurnRow]
