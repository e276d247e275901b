"""What a study is, as data: a base configuration, axes of overrides, sizes, seeds, rates to choose from, a budget."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from seedbed.config import Config
from seedbed.config.explain import explain
from seedbed.config.load import parse_override, read_tree, section_at
from seedbed.config.options import suggest
from seedbed.config.reader import parse_file, to_json
from seedbed.config.section import Section
from seedbed.errors import InputError
from seedbed.study.axes import Axis, Name, Sizes, Values
from seedbed.study.evaluate import Evaluate
from seedbed.study.paths import whole, whole_tree
from seedbed.study.scales import at_scale
from seedbed.study.sections import Base, Budget, Compare, Seed, Tune

Look = Literal["residual", "masking", "sink", "weights", "profiles", "token_losses"]
ONE_SIZE = "base"
"""What the size of the base is called where a study has no other."""
STUDY_SETS = {
    "run.dir": "--out",
    "run.seed": "seeds and tune.seed",
    "train.steps": "budget and shares",
    "train.eval_every": "milestones",
    "train.log_every": "every step is logged",
}
"""Fields of the configuration that are the study's to set, and by what."""


def _study_name(name: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name) is None:
        raise ValueError(f"write lower-case letters, digits, hyphens, 64 at most and no hyphen first, not {name!r}")
    return name


class Spec(Section):
    """A study."""

    format_version: Literal[1] = 1
    """Version of this format."""
    name: Annotated[str, AfterValidator(_study_name)]
    """Name of the study and of its folder: lower-case letters, digits, hyphens."""
    question: str
    """What is to be found out, in a sentence."""
    source: str | None = None
    """Where the question comes from: paper and figure."""
    notes: dict[str, str] = Field(default={})
    """What a reader should know: settings of the paper that this scale does not have, and why."""
    base: Base | None = None
    """Configuration that all runs start from. A study's file names it by its path, relative to itself."""
    set: Values = Field(default={})
    """Overrides of all runs."""
    axes: Annotated[dict[Name, Axis], Field(min_length=1)]
    """Axes of arms: `gamma: {init.gamma: [0.5, 1.0]}`, or named levels of several overrides each. Arms are all
    combinations."""
    sizes: Sizes = Field(default={ONE_SIZE: {}})
    """Sizes, by formula or as named overrides; by default one, that of the base."""
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
    observe: list[Look] = Field(default=["residual", "masking"])
    """What is measured of each model before its first step and after its last."""
    evaluate: Evaluate | None = None
    """What the models of the whole budget are asked after their last step, as `seedbed eval` asks it."""

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

    @model_validator(mode="after")
    def _overrides(self) -> Self:
        """Each path names a field, and no part of the study sets one that another decides anyway."""
        for place, paths in self.places.items():
            for path in paths:
                section, _, field = path.partition(".")
                if section not in Config.model_fields or not field:
                    raise ValueError(f"{place}: '{path}' is no field; write its path with dots, for example optim.lr")
                if path in STUDY_SETS:
                    raise ValueError(f"{place}: {path} is the study's to set ({STUDY_SETS[path]}); leave it out")
                others = [other for other in self.setting(path) if other != place]
                if place == "tune.grid" and others:
                    raise ValueError(f"tune.grid: {path} is set by {others[0]} too; leave it out of one")
                if place != "set" and (other := next((other for other in others if other != "set"), None)):
                    raise ValueError(f"{place} and {other} both set {path}; leave it out of one")
        for name, levels in {"sizes": self.sizes, **self.axes}.items():
            for path in self.set:
                if all(path in level for level in levels.values()):
                    raise ValueError(f"set: {path} is set by every level of {name}, which wins; leave it out of one")
        return self

    @cached_property
    def places(self) -> dict[str, list[str]]:
        """The paths of the configuration that each part of the study sets, by the part: ``set``, ``axes.gamma``, ..."""
        levels = {"sizes": self.sizes, **{f"axes.{name}": axis for name, axis in self.axes.items()}}
        found = {place: list(dict.fromkeys(chain(*of.values()))) for place, of in levels.items()}
        return {"set": list(self.set), "tune.grid": [] if self.tune is None else list(self.tune.grid), **found}

    def setting(self, path: str) -> list[str]:
        """The parts of the study that set ``path``."""
        return [place for place, paths in self.places.items() if path in paths]

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Read a study's file. ``overrides`` choose a scale (``size=cpu``), or set fields of the study (``seeds=[0,1]``) or
    of the configuration of all runs (``data.store=FOLDER``).

    The file that ``base`` names is read too, and is not needed any more where the study is kept. Paths of stores and
    checkpoints are relative to the working directory, as `seedbed train` has them, and absolute in the result. Raises
    InputError with file or override, the path of the field, and what was meant.
    """
    tree = parse_file(path)
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a study is a mapping (name:, question:, axes:, seeds:, ...)")
    tree, rest = at_scale(tree, str(path), overrides)
    if isinstance(tree.get("base"), str):
        tree["base"] = str(Path(path).parent / tree["base"])
    origin: dict[tuple[str, ...], str] = {}
    for override in rest:
        keys, value = parse_override(override)
        keys = _joined(keys)
        section_at(tree, keys, f"override '{override}'")[keys[-1]] = value
        origin[keys] = f"override '{override}'"
    if isinstance(tree.get("base"), str):
        file = Path(tree["base"]).resolve()
        try:
            tree["base"] = {"file": str(file), "values": whole_tree(read_tree(file))}
        except InputError as error:
            raise InputError(f"{path}: base: {error}") from None
    spec = spec_from(tree, str(path), origin)
    for keys, told in origin.items():
        others = [place for place in spec.setting(keys[-1]) if place != "set"] if keys[0] == "set" else []
        if others:
            raise InputError(f"{told}: {keys[-1]} is set by {others[0]} of the study, which would win; change it there")
    axes = {name: {level: whole(values) for level, values in axis.items()} for name, axis in spec.axes.items()}
    sizes = {size: whole(values) for size, values in spec.sizes.items()}
    evaluate = None if spec.evaluate is None else spec.evaluate.whole()
    return spec.model_copy(update={"set": whole(spec.set), "axes": axes, "sizes": sizes, "evaluate": evaluate})


def _joined(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The place in the study's tree that an override names; where paths of a configuration are keys, one key is all of
    ``optim.lr``."""
    if keys[0] in Config.model_fields and keys[0] not in Spec.model_fields:
        return "set", ".".join(keys)
    if keys[0] == "set" and len(keys) > 1:
        return "set", ".".join(keys[1:])
    if keys[:2] == ("tune", "grid") and len(keys) > 2:
        return "tune", "grid", ".".join(keys[2:])
    return keys


def spec_from(tree: dict[str, Any], where: str, origin: dict[tuple[str, ...], str] | None = None) -> Spec:
    """A study from plain values; ``where`` names the source in errors. Raises InputError as load_spec does."""
    try:
        return Spec.model_validate_json(to_json(tree, where))
    except ValidationError as error:
        raise InputError(explain(error, where, origin or {}, Spec)) from None
