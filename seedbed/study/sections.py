"""Parts of a study's file: where it starts from, how long its runs are, what arms choose, what is compared."""

from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from seedbed.config.section import Section
from seedbed.study.axes import label_of

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Base(Section):
    """A configuration's file as it was when the study was read."""

    file: str
    """Where it was read; what it says later changes nothing."""
    values: dict[str, Any]
    """What it says."""


class Budget(Section):
    """How long each run is; one of these, the same for all arms of a size."""

    tokens: Annotated[float, Field(ge=1)] | None = None
    """Tokens read, steps times batch times length: padding counts."""
    tokens_per_parameter: Annotated[float, Field(gt=0)] | None = None
    """Tokens over all parameters, embeddings included."""
    flops: Annotated[float, Field(ge=1)] | None = None
    """Operations of forward and backward passes, as `seedbed study plan` counts them."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.tokens, self.tokens_per_parameter, self.flops)) != 1:
            raise ValueError("give one of tokens, tokens_per_parameter and flops")
        return self


class Tune(Section):
    """What each arm may choose for itself, on a seed of its own, before it is compared on the others."""

    grid: Annotated[dict[str, list[float | int]], Field(min_length=1)]
    """Values in rising order by path, three at least: the best must have a worse one on either side."""
    seed: Seed
    """Seed of these runs; none of `seeds`."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for path, values in self.grid.items():
            if len(values) < 3:
                raise ValueError(
                    f"grid.{path}: write three values at least; the best must have a worse one on either side"
                )
            if any(a >= b for a, b in pairwise(values)):
                raise ValueError(f"grid.{path}: write the values in rising order, each once")
        return self


class Compare(Section):
    """Which levels of which axis are set against which."""

    axis: str
    """Name of the axis."""
    baseline: Annotated[str, BeforeValidator(label_of)]
    """Its level that the others are compared with."""
