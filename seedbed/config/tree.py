"""The configuration: one strict, typed, serialisable tree.

Every section refuses unknown keys and wrong types. A value that another one determines (``None`` here) is resolved
when the tree is built, so that what is saved with a run says everything and reloads to the same object.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from seedbed.config.options import law_options

FORMAT_VERSION = 1

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Span = Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RunConfig(Section):
    dir: str | None = None
    """Folder of the run."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of weights and of the data order."""


class AttentionConfig(Section):
    n_heads: Positive = 4
    n_kv_heads: Positive | None = None
    """Heads of keys and values; fewer than n_heads is grouped-query attention. Default: n_heads."""
    head_dim: Positive | None = None
    """Width of a head. Default: d_model / n_heads."""
    gate: Literal["none", "elementwise", "headwise"] = "none"
    """Sigmoid gate on each head's output, computed from the layer's normed input (S0, S3 11.8.3.5)."""
    qk_norm: bool = False
    """RMSNorm of queries and keys, per head, before the rotation."""


class FfnConfig(Section):
    kind: Literal["swiglu", "gelu"] = "swiglu"
    d_ff: Positive | None = None
    """Hidden width. Default: 4*d_model for gelu; 8/3*d_model rounded up to a multiple of 64 for swiglu."""


class ModelConfig(Section):
    vocab_size: Positive | None = None
    """Rows of the embedding table. Default: the vocabulary of data.store."""
    d_model: Positive = 128
    n_layers: Positive = 4
    max_seq_len: Positive = 256
    """Longest sequence; the size of the position table where positions are learned."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-12
    position: Literal["rope", "learned"] = "rope"
    rope_theta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10_000.0
    bias: bool = False
    """Biases on linear maps and shifts on norms."""
    tied: bool = False
    """Output head shares the embedding table."""
    attention: AttentionConfig = AttentionConfig()
    ffn: FfnConfig = FfnConfig()

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        attention, ffn = self.attention, self.ffn
        n_kv = attention.n_kv_heads or attention.n_heads
        if attention.n_heads % n_kv:
            raise ValueError(f"attention.n_kv_heads={n_kv} does not divide attention.n_heads={attention.n_heads}")
        head_dim = attention.head_dim
        if head_dim is None:
            if self.d_model % attention.n_heads:
                raise ValueError(
                    f"attention.n_heads={attention.n_heads} does not divide d_model={self.d_model}; "
                    "change one or set attention.head_dim"
                )
            head_dim = self.d_model // attention.n_heads
        if self.position == "rope" and head_dim % 2:
            raise ValueError(f"rope needs an even attention.head_dim, not {head_dim}")
        d_ff = ffn.d_ff or (4 * self.d_model if ffn.kind == "gelu" else -(-8 * self.d_model // (3 * 64)) * 64)
        # frozen sections: the resolved values are put in place once, here
        resolved = {"n_kv_heads": n_kv, "head_dim": head_dim}
        object.__setattr__(self, "attention", attention.model_copy(update=resolved))
        object.__setattr__(self, "ffn", ffn.model_copy(update={"d_ff": d_ff}))
        return self


class InitConfig(BaseModel):
    """A law and its options; the options a law takes are the keyword arguments of its function in seedbed.laws."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    law: str = "gamma"

    @model_validator(mode="after")
    def _options(self) -> Self:
        checked = law_options(self.law, dict(self.__pydantic_extra__ or {}))
        object.__setattr__(self, "__pydantic_extra__", checked)
        return self

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class DataConfig(Section):
    store: str | None = None
    """Folder made by `seedbed data prepare`."""


class ConstantSchedule(Section):
    kind: Literal["constant"]
    warmup: Span = 0.02
    """A whole number counts steps; a fraction is a share of train.steps."""


class CosineSchedule(Section):
    kind: Literal["cosine"]
    warmup: Span = 0.02
    final: Rate = 0.1
    """Rate of the last step, as a share of the peak."""


class WsdSchedule(Section):
    kind: Literal["wsd"] = "wsd"
    warmup: Span = 0.02
    decay: Span = 0.2
    """Length of the cooldown at the end of the run."""
    shape: Literal["linear", "sqrt"] = "sqrt"
    """Cooldown: linear, or 1 - sqrt(t) (S3 11.8.2.2)."""
    final: Rate = 0.0


Schedule = Annotated[ConstantSchedule | CosineSchedule | WsdSchedule, Field(discriminator="kind")]


class MuonConfig(Section):
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    nesterov: bool = True
    ns_steps: Positive = 5


class OptimConfig(Section):
    name: Literal["adamw", "muon"] = "muon"
    """muon: Muon on the matrices of the blocks, AdamW on embeddings, head, norms and biases."""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-3
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Rate = 0.1
    """On matrices; never on norms and biases."""
    muon: MuonConfig = MuonConfig()
    schedule: Schedule = WsdSchedule()

    @field_validator("schedule", mode="before")
    @classmethod
    def _default_kind(cls, value: Any) -> Any:
        return {"kind": "wsd", **value} if isinstance(value, dict) else value


class TrainConfig(Section):
    steps: Positive = 300
    """Optimizer steps of the whole run."""
    batch_size: Positive = 16
    """Sequences a step, over all ranks and accumulation steps."""
    micro_batch_size: Positive | None = None
    """Sequences a forward pass; batch_size / micro_batch_size passes are accumulated. Default: batch_size."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Bound of the global gradient norm; null switches clipping off."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: forward and backward under autocast, weights and optimizer in fp32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compile: bool = False
    log_every: Positive = 1
    eval_every: Annotated[int, Field(ge=-1)] = 100
    """Steps between evaluations; 0: only at the end; -1: never."""
    eval_sequences: Positive | None = 64
    """Held-out sequences an evaluation reads, the same ones each time; null: all of them."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 100
    """Steps between checkpoints; 0: only at the end and when a signal stops the run."""
    keep_checkpoints: Positive = 2
    """Newest checkpoints to keep; the newest whole one is never removed."""
    init_from: str | None = None
    """A run or checkpoint whose weights this run starts from (weights only; everything else starts anew)."""
    tensorboard: bool = False

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        micro = self.micro_batch_size or self.batch_size
        if self.batch_size % micro:
            raise ValueError(f"micro_batch_size={micro} does not divide batch_size={self.batch_size}")
        object.__setattr__(self, "micro_batch_size", micro)
        return self


class Config(Section):
    """Everything a run depends on."""

    format_version: Literal[1] = FORMAT_VERSION
    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    init: InitConfig = InitConfig()
    data: DataConfig = DataConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

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
