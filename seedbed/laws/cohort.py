"""A cohort: how trained checkpoints are scaled over depth, component by component, as a file that laws read (S2)."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from seedbed.errors import InputError

FORMAT_VERSION = 1
SHIPPED = Path(__file__).with_name("cohort.json")
# Common relative depths: 24ths, so that models of 2, 3, 4, 5, 7, 9, 13 and 25 layers have points of their own (choice).
GRID = tuple(step / 24 for step in range(25))

Positive = Annotated[float, Field(gt=0)]
Spread = Annotated[float, Field(ge=0)]


def component_of(role: str) -> str:
    """The component that matrices of ``role`` belong to: queries, keys and values are one, as S2 measures them."""
    return "attn.qkv" if role in ("attn.q", "attn.k", "attn.v") else role


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Curve(_Strict):
    """One measure over the cohort's depths."""

    mean: tuple[Positive, ...]
    std: tuple[Spread, ...] | None  # over checkpoints, of a sample; None where there is one checkpoint


class Component(_Strict):
    """What checkpoints have in common at one component; a matrix W is m x n with singular values s."""

    checkpoints: Annotated[int, Field(gt=0)]
    rms: Curve  # ||W||_F / sqrt(mn)
    entropy_rank: Curve  # exp(-sum p log p), p = s / sum s: grows with width
    rank_share: Curve  # the same over min(m, n): compares between widths


class Member(_Strict):
    """A checkpoint that was measured."""

    name: str
    layers: int
    width: int
    parameters: int
    sha256: tuple[str, ...]  # of each file of its weights
    left_out: tuple[str, ...]  # "matrix: reason" of each that could not be measured


class Cohort(_Strict):
    """Measures of trained checkpoints by component, at common relative depths."""

    format: Literal["seedbed cohort"] = "seedbed cohort"
    format_version: Literal[1] = FORMAT_VERSION
    command: str  # that made it
    version: str  # of the program that made it
    note: str  # how the checkpoints came about
    depth: tuple[float, ...]
    members: tuple[Member, ...]
    components: dict[str, Component]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        depth = self.depth
        if len(depth) < 2 or (depth[0], depth[-1]) != (0, 1) or list(depth) != sorted(set(depth)):
            raise ValueError("depth does not rise from 0 to 1")
        for name, component in self.components.items():
            for curve in (component.rms, component.entropy_rank, component.rank_share):
                if {len(depth)} != {len(values) for values in (curve.mean, curve.std) if values is not None}:
                    raise ValueError(f"a curve of {name} has not one value a depth")
        return self

    def rms(self, role: str, z: float) -> float:
        """The mean RMS of the component of ``role`` at relative depth ``z`` in [0, 1], linear between the depths.

        Raises InputError where the checkpoints have none.
        """
        import numpy as np  # late: laws are known to the command line's help

        return float(np.interp(z, self.depth, self._component(role).rms.mean))

    def mean_rms(self, role: str) -> float:
        """The average of :meth:`rms` over all relative depths from 0 to 1."""
        import numpy as np

        return float(np.trapezoid(self._component(role).rms.mean, self.depth))

    def to_json(self) -> str:
        """The file's text, each list of numbers on one line."""
        text = self.model_dump_json(indent=1)
        return re.sub(r"\[[\d\s.,e-]+\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text) + "\n"

    def _component(self, role: str) -> Component:
        name = component_of(role)
        if name not in self.components:
            raise InputError(
                f"the cohort is of another component set: it has {', '.join(self.components)}, and no {name}; give "
                "cohort=FILE, made by `seedbed analyze cohort` from models with this component"
            )
        return self.components[name]


def read_cohort(path: str | None) -> Cohort:
    """The cohort in the file ``path``, or the one that is shipped. Raises InputError with what is wrong.

    The file is read each time, so it is never stale; what it says is parsed once.
    """
    place = SHIPPED if path is None else Path(path)
    try:
        return _parse(place.read_bytes(), str(place))
    except OSError as error:
        raise InputError(f"cohort {place}: {error.strerror}; make one with `seedbed analyze cohort`") from None


@lru_cache(maxsize=8)
def _parse(content: bytes, where: str) -> Cohort:
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("format") != Cohort.model_fields["format"].default:
        raise InputError(f"cohort {where}: not a cohort; give a file that `seedbed analyze cohort` made")
    if told.get("format_version") != FORMAT_VERSION:
        version = told.get("format_version")
        raise InputError(
            f"cohort {where}: format_version {version}, this release reads {FORMAT_VERSION}; measure again"
        )
    try:
        return Cohort.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its curves"
        raise InputError(f"cohort {where}: damaged ({place}: {first['msg']}); measure it again") from None
