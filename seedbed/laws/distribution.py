"""What a law gives to a parameter."""

import math
from dataclasses import dataclass
from typing import Literal, get_args


@dataclass(frozen=True)
class Distribution:
    """How the entries of one parameter come about; ``std`` is their root mean square where they are drawn around 0.

    - ``normal``: N(0, std^2), not truncated; ``uniform``: U(-b, b) with b = std*sqrt(3).
    - ``orthogonal``: orthonormal rows or columns times a gain, such that the entries have ``std``.
    - ``spectrum``: normal, then singular value i of n multiplied by exp(-decay*i/n), then scaled to ``std`` (S2).
    - ``constant``: every entry equals ``value``; ``kept``: left as the module was built; ``copied``: from a checkpoint.
    """

    kind: Literal["normal", "uniform", "orthogonal", "spectrum", "constant", "kept", "copied"]
    std: float = 0.0
    value: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in (kinds := get_args(type(self).__annotations__["kind"])):
            raise ValueError(f"'{self.kind}' is no kind of distribution; known: {', '.join(kinds)}")

    @property
    def is_drawn(self) -> bool:
        return self.kind in ("normal", "uniform", "orthogonal", "spectrum")

    def __str__(self) -> str:
        match self.kind:
            case "constant":
                return f"= {self.value:g}"
            case "uniform":
                return f"U(±{self.std * math.sqrt(3):.4g})"
            case "orthogonal":
                return f"orthogonal, rms {self.std:.4g}"
            case "spectrum":
                shaped = f"·exp(-{self.decay:.3g}·i/n)" if self.decay else ""
                return f"N{shaped}, rms {self.std:.4g}"
            case "normal":
                return f"N(0, {self.std:.4g}²)"
            case _:
                return self.kind


KEPT = Distribution("kept")
COPIED = Distribution("copied")
ZERO = Distribution("constant", value=0.0)
ONE = Distribution("constant", value=1.0)
