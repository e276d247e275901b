"""The section of the optimizer and its schedule."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from seedbed.config.section import Epsilon, Positive, Rate, Section, Span

WARMUP = Field(default=0.02, description="Linear warmup: whole numbers count steps, fractions share train.steps.")


class ConstantSchedule(Section):
    """Warmup, then the peak rate to the end."""

    kind: Literal["constant"]
    """The schedule's name."""
    warmup: Span = WARMUP


class CosineSchedule(Section):
    """Warmup, then half a cosine down to `final`."""

    kind: Literal["cosine"]
    """The schedule's name."""
    warmup: Span = WARMUP
    final: Rate = 0.1
    """Rate of the last step, as a share of the peak."""


class WsdSchedule(Section):
    """Warmup, stable, decay: the peak rate until a cooldown to `final` at the end."""

    kind: Literal["wsd"] = "wsd"
    """The schedule's name."""
    warmup: Span = WARMUP
    decay: Span = 0.2
    """Length of the cooldown: whole numbers count steps, fractions share train.steps."""
    shape: Literal["linear", "sqrt"] = "sqrt"
    """Cooldown: linear, or 1 - sqrt(t) (S3 11.8.2.2)."""
    final: Rate = 0.0
    """Rate of the last step, as a share of the peak."""


Schedule = Annotated[ConstantSchedule | CosineSchedule | WsdSchedule, Field(discriminator="kind")]


class MuonConfig(Section):
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of the momentum that is orthogonalized."""
    nesterov: bool = True
    """Look one step ahead along the momentum."""
    ns_steps: Annotated[int, Field(ge=5, le=100)] = 5
    """Newton-Schulz steps; fewer than 5 do not orthogonalize."""
    embeddings: Literal["adamw", "muon"] = "adamw"
    """What updates the tables of tokens and positions, a tied head with them. muon: each table is orthogonalized as one
    matrix; S1 found a higher loss with it."""


class OptimConfig(Section):
    name: Literal["adamw", "muon"] = "muon"
    """muon: Muon on the matrices of the blocks, AdamW on embeddings (see muon.embeddings), head, norms and biases."""
    lr: Annotated[float, Field(gt=0, le=1e6)] = 2e-3
    """Peak learning rate, of every group (see base_width)."""
    base_width: Positive | None = None
    """Width at which every group has the rate lr: at width d hidden matrices get lr*base_width/d from AdamW and
    lr*sqrt(base_width/d) from Muon. Default: that of init.law=mup; null, one rate at every width, with other laws."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decays of AdamW's first and second moment."""
    eps: Epsilon = 1e-8
    """Added to the root of AdamW's second moment."""
    weight_decay: Rate = 0.1
    """On matrices, never on norms and biases; a step takes the share lr*weight_decay at every width."""
    muon: MuonConfig = MuonConfig()
    """Options of Muon."""
    schedule: Schedule = WsdSchedule()
    """The learning rate over the run."""

    @field_validator("schedule", mode="before")
    @classmethod
    def _default_kind(cls, value: Any) -> Any:
        return {"kind": "wsd", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _unread(self) -> Self:
        if self.name != "muon" and self.muon != MuonConfig():
            raise ValueError(f"muon's options are not read with name={self.name}; leave them out")
        return self
