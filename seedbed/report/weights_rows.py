"""What an analysis of weights finds, as its page shows it: plain rows."""

from dataclasses import dataclass, field

from seedbed.measure.rows import ComponentRow, MatrixRow, ProfileRow
from seedbed.measure.table import Rows


@dataclass(frozen=True)
class Spectrum:
    """All singular values of one matrix, descending."""

    name: str
    role: str
    layer: int | None
    depth: float | None
    values: list[float]


@dataclass(frozen=True)
class SingularValue:
    """A spectrum's entry as a table has it; ``index`` counts from 1."""

    name: str
    role: str
    layer: int | None
    index: int
    sigma: float


@dataclass(frozen=True)
class DensityRow:
    """How the entries of all matrices of a component are distributed, each matrix in its own standard units, (entry -
    mean) / std: a kernel estimate on a grid of values."""

    role: str
    entries: int
    sampled: int
    """Entries that the estimate is made of, as many of each matrix."""
    at: list[float]
    density: list[float]
    """Per standard deviation."""


@dataclass(frozen=True)
class CosineMap:
    """Cosines between rows of one matrix, in an order that puts alike ones side by side."""

    name: str
    role: str
    layer: int
    rows: int
    """Of the matrix; of many, evenly spaced ones are in ``cosines``."""
    cosines: list[list[float]]
    """[k, k], to two digits."""


@dataclass(frozen=True)
class Weights:
    """All that is measured of the weights of one model."""

    name: str
    layers: int
    parameters: int
    files: dict[str, str]
    """{name: SHA-256} of what was read; empty for a model in memory."""
    matrices: Rows[MatrixRow]
    components: Rows[ComponentRow]
    profiles: Rows[ProfileRow]
    spectra: Rows[Spectrum] = field(default_factory=Rows)
    densities: Rows[DensityRow] = field(default_factory=Rows)
    cosines: Rows[CosineMap] = field(default_factory=Rows)
    unmeasured: int = 0
    """Matrices that were left out because all would have taken too long."""

    @property
    def measured(self) -> str:
        """How many matrices have a spectrum, each counted once, and behind that how many joint ones of those."""
        alone, joint = ([row for row in self.matrices if row.joint is wanted] for wanted in (False, True))
        found, both = (sum(row.stable_rank is not None for row in rows) for rows in (alone, joint))
        told = f"{found} of {len(alone)}"
        if not joint:
            return told
        return f"{told} and {both} joint" if both == len(joint) else f"{told} and {both} of {len(joint)} joint"

    @property
    def singular_values(self) -> Rows[SingularValue]:
        """All spectra in long form."""
        return Rows(
            SingularValue(one.name, one.role, one.layer, index, sigma)
            for one in self.spectra
            for index, sigma in enumerate(one.values, 1)
        )

    @property
    def problems(self) -> list[str]:
        """``name: reason`` of each matrix without some or all of its numbers."""
        return [f"{row.name}: {row.problem}" for row in self.matrices if row.problem is not None]

    @property
    def zero_rows(self) -> list[str]:
        """``name (rows of all)`` of each matrix that has rows of zeros, but for those with a problem."""
        found = [row for row in self.matrices if row.zero_rows and row.problem is None]
        return [f"{row.name} ({row.zero_rows:,} of {row.rows:,})" for row in found]
