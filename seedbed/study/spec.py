"""What a study is, as data: a base configuration, axes of overrides, sizes, seeds, rates to choose from, a budget."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from seedbed.config import Config
from seedbed.config.explain import explain
from seedbed.config.load import parse_override, section_at
from seedbed.config.options import suggest
from seedbed.config.reader import parse_file, to_json
from seedbed.config.section import Folder, Positive, Section
from seedbed.errors import InputError

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f/\\]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Look = Literal["residual", "masking", "sink", "weights", "token_losses"]
Values = dict[str, Any]
"""Dotted paths of a configuration and what is set there. ``{times: a, width_power: p}`` stands for a * d_model^p."""


def label_of(value: Any) -> str:
    """How a value is called where it names a level: ``0.5``, ``adamw``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _levels(axis: Any) -> Any:
    """``{path: [values]}`` written out: a level a value, called by it."""
    if isinstance(axis, dict) and len(axis) == 1:
        ((path, values),) = axis.items()
        if isinstance(values, list):
            levels = {label_of(value): {path: value} for value in values}
            if len(levels) < len(values):
                raise ValueError(f"{path}: a value stands twice")
            return levels
    return axis


Axis = Annotated[dict[Name, Values], BeforeValidator(_levels), Field(min_length=1)]


class Budget(Section):
    """How long each run is; one of these, the same for all arms of a size."""

    tokens: Annotated[float, Field(ge=1)] | None = None
    """Tokens."""
    tokens_per_parameter: Annotated[float, Field(gt=0)] | None = None
    """Tokens over all parameters, embeddings included."""
    flops: Annotated[float, Field(ge=1)] | None = None
    """Operations of forward and backward passes, as `seedbed study plan` counts them."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.tokens, self.tokens_per_parameter, self.flops)) != 1:
            raise ValueError("give one of tokens, tokens_per_parameter and flops")
        return self


class SizeRule(Section):
    """Sizes by formula: d_ff = ffn_ratio * d_model, up to the next multiple; heads = d_model / head_dim."""

    widths: Annotated[list[Positive], Field(min_length=1)]
    """Each d_model."""
    layers: Positive | list[Positive]
    """Layers of all sizes, or of each."""
    head_dim: Positive
    """Width of a head."""
    ffn_ratio: Annotated[float, Field(gt=0, le=64)] = 8 / 3
    """d_ff / d_model; rounding it changes what a width does to a branch, so keep the multiple small."""
    ffn_multiple: Positive = 8
    """d_ff is a multiple of it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.layers, list) and len(self.layers) != len(self.widths):
            raise ValueError(f"layers has {len(self.layers)} numbers for {len(self.widths)} widths")
        if bad := [width for width in self.widths if width % self.head_dim]:
            raise ValueError(f"head_dim={self.head_dim} does not divide widths {', '.join(map(str, bad))}")
        return self

    def levels(self) -> dict[str, Values]:
        layers = self.layers if isinstance(self.layers, list) else [self.layers] * len(self.widths)
        found = {}
        for width, depth in zip(self.widths, layers, strict=True):
            d_ff = math.ceil(round(self.ffn_ratio * width / self.ffn_multiple, 6)) * self.ffn_multiple
            found[f"{depth}x{width}"] = {
                "model.d_model": width, "model.n_layers": depth, "model.attention.n_heads": width // self.head_dim,
                "model.ffn.d_ff": d_ff,
            }  # fmt: skip
        if len(found) < len(layers):
            raise ValueError("sizes: one stands twice")
        return found


def _kind_of_sizes(value: Any) -> str:
    return "rule" if isinstance(value, SizeRule) or (isinstance(value, dict) and "widths" in value) else "named"


Sizes = Annotated[
    Annotated[SizeRule, Tag("rule")] | Annotated[dict[Name, Values], Tag("named"), Field(min_length=1)],
    Discriminator(_kind_of_sizes),
]


class Tune(Section):
    """What each arm may choose for itself, on a seed of its own, before it is compared on the others."""

    grid: Annotated[dict[str, Annotated[list[float | int], Field(min_length=3)]], Field(min_length=1)]
    """Values in rising order by path, three at least: the best must have a worse one on either side."""
    seed: Seed
    """Seed of these runs; none of `seeds`."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for path, values in self.grid.items():
            if any(a >= b for a, b in pairwise(values)):
                raise ValueError(f"grid.{path}: write the values in rising order, each once")
        return self


class Compare(Section):
    """Which levels of which axis are set against which."""

    axis: str
    """Name of the axis."""
    baseline: str
    """Its level that the others are compared with."""


class Spec(Section):
    """A study."""

    format_version: Literal[1] = 1
    """Version of this format."""
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    """Name of the study and of its folder: lower-case letters, digits, hyphens."""
    question: str
    """What is to be found out, in a sentence."""
    source: str | None = None
    """Where the question comes from: paper and figure."""
    notes: dict[str, str] = Field(default={})
    """What a reader should know: settings of the paper that this scale does not have, and why."""
    base: Folder | None = None
    """Configuration that all runs start from, relative to the study's file."""
    set: Values = Field(default={})
    """Overrides of all runs."""
    axes: Annotated[dict[Name, Axis], Field(min_length=1)]
    """Axes of arms: `gamma: {init.gamma: [0.5, 1.0]}`, or named levels of several overrides each. Arms are all
    combinations."""
    sizes: Sizes | None = None
    """Sizes, by formula or as named overrides; none: that of the base."""
    tune: Tune | None = None
    """What each arm chooses for itself at each size."""
    seeds: Annotated[list[Seed], Field(min_length=1)]
    """Seeds of the comparison: of weights and order of data, the same for all arms, so that they pair."""
    budget: Budget
    """How long each run is."""
    shares: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)] = Field(default=[1.0])
    """Shares of the budget at which a cooldown ends. Smaller ones branch off the run of the whole budget."""
    milestones: Annotated[int, Field(ge=1, le=1000)] = 8
    """Evaluations of a run, evenly spread."""
    compare: Compare
    """Which differences are reported."""
    differ: list[Literal["data", "budget"]] = Field(default=[])
    """What arms may differ in besides; nothing unless it is said here."""
    optimum: str | None = None
    """A numeric axis whose best value is looked for."""
    observe: list[Literal["residual", "masking", "sink", "weights", "token_losses"]] = Field(
        default=["residual", "masking"]
    )
    """What is measured of each model before its first step and after its last."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.compare.axis not in self.axes:
            raise ValueError(
                f"compare.axis={self.compare.axis}: no such axis; {suggest(self.compare.axis, list(self.axes))}"
            )
        levels = self.axes[self.compare.axis]
        if self.compare.baseline not in levels:
            told = suggest(self.compare.baseline, list(levels))
            raise ValueError(f"compare.baseline={self.compare.baseline}: not a level of {self.compare.axis}; {told}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: one stands twice")
        if self.tune is not None and self.tune.seed in self.seeds:
            raise ValueError(
                f"tune.seed={self.tune.seed} is one of seeds; what was chosen on it may not be judged on it"
            )
        if 1.0 not in self.shares or len(set(self.shares)) < len(self.shares):
            raise ValueError("shares: each once, and 1.0 among them, the run that the others branch off")
        if self.optimum is not None:
            if self.optimum not in self.axes:
                raise ValueError(f"optimum={self.optimum}: no such axis; {suggest(self.optimum, list(self.axes))}")
            self.numbers(self.optimum)
        return self

    def numbers(self, axis: str) -> dict[str, float]:
        """The value of each level of an axis that sets one number. Raises ValueError for another axis."""
        found = {}
        for label, values in self.axes[axis].items():
            (value,) = values.values() if len(values) == 1 else (None,)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"optimum={axis}: its level {label} is not one number")
            found[label] = float(value)
        return found

    def size_levels(self) -> dict[str, Values]:
        if self.sizes is None:
            return {"base": {}}
        return self.sizes.levels() if isinstance(self.sizes, SizeRule) else self.sizes

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Read a study's file. ``overrides`` choose a scale (``size=cpu``), or set fields of the study (``seeds=[0,1]``) or
    of the configuration of all runs (``data.store=FOLDER``).

    ``base`` becomes a path that does not depend on the study's file. Raises InputError with file or override, the path
    of the field, and what was meant.
    """
    tree = parse_file(path)
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a study is a mapping (name:, question:, axes:, seeds:, ...)")
    tree, rest = _at_scale(tree, str(path), overrides)
    if isinstance(tree.get("base"), str):
        tree["base"] = str(Path(path).parent / tree["base"])
    origin: dict[tuple[str, ...], str] = {}
    for override in rest:
        keys, value = parse_override(override)
        if keys[0] in Config.model_fields:
            keys = ("set", ".".join(keys))
        section_at(tree, keys, f"override '{override}'")[keys[-1]] = value
        origin[keys] = f"override '{override}'"
    return spec_from(tree, str(path), origin)


def spec_from(tree: dict[str, Any], where: str, origin: dict[tuple[str, ...], str] | None = None) -> Spec:
    """A study from plain values; ``where`` names the source in errors. Raises InputError as load_spec does."""
    try:
        return Spec.model_validate_json(to_json(tree, where))
    except ValidationError as error:
        raise InputError(explain(error, where, origin or {}, Spec)) from None


def _at_scale(tree: dict[str, Any], where: str, overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The study at the scale that ``overrides`` name, and the other overrides.

    ``scales: {cpu: {...}}`` has what a scale changes: sections are merged, values replaced.
    """
    scales: Any = tree.pop("scales", None)
    chosen = [override.partition("=")[2].strip() for override in overrides if override.partition("=")[0] == "size"]
    rest = [override for override in overrides if override.partition("=")[0] != "size"]
    if scales is None:
        if chosen:
            raise InputError(f"{where}: override 'size={chosen[-1]}': the study has one scale; leave it out")
        return tree, rest
    if not isinstance(scales, dict) or not all(isinstance(changes, dict) for changes in scales.values()):
        raise InputError(f"{where}: scales: a mapping of names to what each changes")
    if not chosen:
        raise InputError(
            f"{where}: has the scales {', '.join(scales)}; choose one, for example size={next(iter(scales))}"
        )
    if chosen[-1] not in scales:
        raise InputError(f"{where}: override 'size={chosen[-1]}': no such scale; {suggest(chosen[-1], list(scales))}")
    changes: dict[str, Any] = scales[chosen[-1]]
    return _merged(tree, changes), rest


def _merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values of ``changes`` in place of those of ``tree``, mappings merged; axes and sizes are replaced whole."""
    result = dict(tree)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and key not in ("axes", "sizes", "budget", "grid"):
            value = _merged(old, value)
        result[key] = value
    return result
