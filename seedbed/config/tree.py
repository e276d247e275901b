"""The configuration: one strict, typed, serialisable tree.

Every section refuses unknown keys and wrong types. A value that another one determines (``None`` here) is resolved
when the tree is built, so that what is saved with a run says everything and reloads to the same object.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbed.config.model import ModelConfig
from seedbed.config.optim import OptimConfig
from seedbed.config.options import law_options
from seedbed.config.parametrization import PATHS, parametrization
from seedbed.config.section import Folder, Section
from seedbed.config.train import ParallelConfig, TrainConfig

FORMAT_VERSION = 1


class RunConfig(Section):
    dir: Folder | None = None
    """Folder of the run."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of weights and of the data order."""


class InitConfig(BaseModel):
    """A law and its options; the options a law takes are the keyword arguments of its function in seedbed.laws."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, use_attribute_docstrings=True)
    law: str = "gamma"
    """Name of a law in seedbed.laws.LAWS."""

    @model_validator(mode="after")
    def _options(self) -> Self:
        checked = law_options(self.law, dict(self.__pydantic_extra__ or {}))
        object.__setattr__(self, "__pydantic_extra__", checked)
        return self

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class DataConfig(Section):
    store: Folder | None = None
    """Folder made by `seedbed data prepare`."""
    prefetch: Annotated[int, Field(ge=0, le=1024)] = 2
    """Batches made ahead by a thread while the model trains; 0: none."""


class Config(Section):
    """Everything a run depends on."""

    format_version: Literal[1] = FORMAT_VERSION
    """Version of this format."""
    run: RunConfig = RunConfig()
    """The run's folder and seed."""
    model: ModelConfig = ModelConfig()
    """The decoder."""
    init: InitConfig = InitConfig()
    """How weights are drawn."""
    data: DataConfig = DataConfig()
    """What is trained on."""
    optim: OptimConfig = OptimConfig()
    """Optimizer and schedule."""
    train: TrainConfig = TrainConfig()
    """Length, batches, evaluation, checkpoints."""
    parallel: ParallelConfig = ParallelConfig()
    """Many ranks, little memory."""

    @model_validator(mode="after")
    def _parametrize(self) -> Self:
        """Put in place what the law decides outside its section. µP with a part of it changed would not be µP."""
        model, attention, optim = self.model, self.model.attention, self.optim
        assert attention.head_dim
        told = (model.output_multiplier, attention.scale, optim.base_width)
        decided = parametrization(self.init.law, self.init.options, model.d_model, attention.head_dim)
        for path, value, due in zip(PATHS, told, decided, strict=True):
            if self.init.law == "mup" and value not in (None, due):
                raise ValueError(f"{path}={value}: init.law=mup makes it {due} here; leave it out or set it to null")
        multiplier, scale, base_width = (t if t is not None else d for t, d in zip(told, decided, strict=True))
        resolved = {"attention": attention.model_copy(update={"scale": scale}), "output_multiplier": multiplier}
        object.__setattr__(self, "model", model.model_copy(update=resolved))
        object.__setattr__(self, "optim", optim.model_copy(update={"base_width": base_width}))
        return self

    @classmethod
    def load(cls, path: str | None = None, overrides: list[str] | tuple[str, ...] = ()) -> "Config":
        """Read a YAML or JSON file and apply dotted overrides such as ``"optim.lr=1e-3"``, in order.

        Raises InputError with the file or override, the path of the field, and a suggestion.
        """
        from seedbed.config.load import load

        return load(path, overrides)

    def dump(self) -> dict[str, Any]:
        """Plain values, complete: ``Config.model_validate(config.dump()) == config`` up to lists and tuples."""
        return self.model_dump(mode="json")
