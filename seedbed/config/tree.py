"""The configuration: one strict, typed, serialisable tree.

Every section refuses unknown keys and wrong types. A value that another one determines (``None`` here) is resolved
when the tree is built, so that what is saved with a run says everything and reloads to the same object.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from seedbed.config.options import law_options
from seedbed.config.parametrization import PATHS, parametrization

FORMAT_VERSION = 1

# Sizes and counts fit 32 bits and floats fit fp32, whatever computes with them.
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Rate = Annotated[float, Field(ge=0, le=1e6)]
Span = Annotated[int, Field(ge=0, lt=2**31)] | Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Epsilon = Annotated[float, Field(ge=1e-37, le=1)]
Multiplier = Annotated[float, Field(ge=1e-9, le=1e9)]
Folder = Annotated[str, Field(min_length=1, pattern="^[^\\x00]*$")]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class RunConfig(Section):
    dir: Folder | None = None
    """Folder of the run."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of weights and of the data order."""


class AttentionConfig(Section):
    n_heads: Positive = 4
    """Query heads."""
    n_kv_heads: Positive | None = None
    """Heads of keys and values; fewer than n_heads is grouped-query attention. Default: n_heads."""
    head_dim: Positive | None = None
    """Width of a head. Default: d_model / n_heads."""
    gate: Literal["none", "elementwise", "headwise"] = "none"
    """Sigmoid gate on each head's output, computed from the layer's normed input (S0, S3 11.8.3.5)."""
    qk_norm: bool = False
    """RMSNorm of queries and keys, per head, before the rotation: scores stay bounded however large they grow, against
    spikes of the loss (Dehghani et al. 2023; S3)."""
    scale: Multiplier | None = None
    """Factor of the scores q·k. Default: head_dim^-1/2; with init.law=mup 8/head_dim, the same at head_dim 64."""


class FfnConfig(Section):
    kind: Literal["swiglu", "gelu"] = "swiglu"
    """swiglu: down(silu(gate(x)) * up(x)), three matrices. gelu: down(gelu(up(x))), two."""
    d_ff: Positive | None = None
    """Hidden width. Default: 4*d_model for gelu; 8/3*d_model rounded up to a multiple of 64 for swiglu."""


class ModelConfig(Section):
    vocab_size: Positive | None = None
    """Rows of the embedding table. Default: the vocabulary of data.store."""
    d_model: Positive = 128
    """Width of the residual stream."""
    n_layers: Positive = 4
    """Blocks, each attention and a feed-forward network."""
    max_seq_len: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """Longest sequence; the size of the position table where positions are learned."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """Norm in front of each branch and of the head."""
    norm_eps: Epsilon = 1e-12
    """Added to the mean square in every norm; 1e-5 hides a small initialization (S0 section 2.1)."""
    position: Literal["rope", "learned"] = "rope"
    """rope: rotary angles, made in fp32. learned: a table added to the embedding."""
    rope_theta: Annotated[float, Field(gt=0, le=1e30)] = 10_000.0
    """Base of the rotary angles."""
    bias: bool = False
    """Biases on linear maps and shifts on norms."""
    tied: bool = False
    """Output head shares the embedding table."""
    output_multiplier: Multiplier | None = None
    """Factor of the logits. Default: 1; with init.law=mup base_width/d_model."""
    attention: AttentionConfig = AttentionConfig()
    """Heads, gate, QK-norm."""
    ffn: FfnConfig = FfnConfig()
    """The feed-forward network."""

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
        if self.position == "learned" and self.rope_theta != ModelConfig.model_fields["rope_theta"].default:
            raise ValueError("rope_theta is not read with position=learned; leave it out")
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


class OptimConfig(Section):
    name: Literal["adamw", "muon"] = "muon"
    """muon: Muon on the matrices of the blocks, AdamW on embeddings, head, norms and biases."""
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


class GuardConfig(Section):
    nonfinite: Literal["stop", "skip", "rollback"] = "stop"
    """A loss or gradient that is not finite. stop: the run ends before the update, exit code 3. skip: the batch makes
    no update. rollback: back to the newest checkpoint, on with the data behind the batch."""
    spike: Literal["off", "stop", "skip", "rollback"] = "off"
    """The same for a loss or gradient norm far above those before it."""
    window: Annotated[int, Field(ge=8, le=2**16)] = 128
    """A spike is measured against so many updates; none is seen before they are made."""
    threshold: Annotated[float, Field(gt=0, le=1e6)] = 6.0
    """A spike lies more than this many robust deviations above their median."""
    max_skips: Positive = 10
    """Batches skipped in a row at most; one more stops the run."""
    max_rollbacks: Positive = 10
    """Rollbacks of the whole run at most; one more stops it."""

    @model_validator(mode="after")
    def _unread(self) -> Self:
        chosen = (self.nonfinite, self.spike)
        for name, read, told in (
            ("window", self.spike != "off", "spike=off"),
            ("threshold", self.spike != "off", "spike=off"),
            ("max_skips", "skip" in chosen, "neither nonfinite=skip nor spike=skip"),
            ("max_rollbacks", "rollback" in chosen, "neither nonfinite=rollback nor spike=rollback"),
        ):
            if not read and getattr(self, name) != GuardConfig.model_fields[name].default:
                raise ValueError(f"{name} is not read with {told}; leave it out")
        return self


class TrainConfig(Section):
    steps: Positive = 300
    """Optimizer steps of the whole run."""
    batch_size: Positive = 16
    """Sequences a step, over all ranks and accumulation steps."""
    micro_batch_size: Positive | None = None
    """Sequences of a forward pass on one rank, at most; the passes of a batch are accumulated. Default: batch_size."""
    clip_norm: Annotated[float, Field(gt=0, le=1e30)] | None = 1.0
    """Bound of the global gradient norm; null switches clipping off."""
    z_loss: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Factor of the mean of (log Z)^2, Z the softmax's sum, which is trained on besides the loss and reported apart: it
    keeps logits from drifting off (PaLM: 1e-4). 0: none."""
    guard: GuardConfig = GuardConfig()
    """What happens when the loss or the gradient goes wrong."""
    precision: Literal["fp32", "bf16", "pure_bf16", "fp64"] = "fp32"
    """bf16: forward and backward under autocast, weights and optimizer in fp32. pure_bf16: weights in bf16 too, where
    small updates are lost; the optimizer stays in fp32. fp64: all in fp64, to tell rounding from error."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes CUDA where it is; cpu never asks."""
    compile: Literal["auto"] | bool = "auto"
    """torch.compile the model, or each block where parallel.strategy=fsdp splits it over ranks. auto: in runs of 2,000
    steps or more, of a model that is not split, where a C++ compiler is found; shorter ones end before it has paid."""
    log_every: Positive = 1
    """Steps between rows of metrics.jsonl."""
    gradients_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps between looks at the gradient of each component: its scale, its zeros, a histogram; 0: never."""
    eval_every: Annotated[int, Field(ge=-1, lt=2**31)] = 100
    """Steps between evaluations; 0: only at the end; -1: never."""
    eval_sequences: Positive | None = 64
    """Held-out sequences an evaluation reads, the same ones each time; null: all of them."""
    checkpoint_every: Annotated[int, Field(ge=0, lt=2**31)] = 100
    """Steps between checkpoints; 0: only at the end and when a signal stops the run."""
    keep_checkpoints: Positive = 2
    """Newest checkpoints to keep; the newest whole one is never removed."""
    keep_best: bool = True
    """Keep the checkpoint with the lowest held-out loss besides, of those that were evaluated at their own step."""
    async_checkpoints: bool = True
    """Write checkpoints beside the steps, from a copy of weights and optimizer state in the memory of the CPU; false:
    training stands still meanwhile, and no copy is made."""
    init_from: Folder | None = None
    """A run or checkpoint whose weights this run starts from (weights only; everything else starts anew)."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too (extra: track)."""

    @model_validator(mode="after")
    def _resolve(self) -> Self:
        micro = self.micro_batch_size or self.batch_size
        if self.batch_size % micro:
            raise ValueError(f"micro_batch_size={micro} does not divide batch_size={self.batch_size}")
        if self.checkpoint_every == 0 and "rollback" in (self.guard.nonfinite, self.guard.spike):
            raise ValueError("guard: rollback has no checkpoint to go back to with checkpoint_every=0; set it higher")
        object.__setattr__(self, "micro_batch_size", micro)
        return self


class ParallelConfig(Section):
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """How several ranks hold the model. ddp: each all of it. fsdp: each its share of parameters, gradients and
    optimizer state. One rank alone holds all."""
    recompute: Literal["none", "block", "selective"] = "none"
    """Activations made again in backward instead of kept. block: all but each block's input. selective: all but each
    block's input and the results of its products."""
    offload: bool = False
    """fsdp: parameters and optimizer state stay in the memory of the CPU."""
    timeout_s: Annotated[int, Field(gt=0, le=86400)] = 600
    """Seconds that a rank waits for the others within a step before the run stops."""

    @model_validator(mode="after")
    def _unread(self) -> Self:
        if self.offload and self.strategy != "fsdp":
            raise ValueError(f"offload=true is not read with strategy={self.strategy}; set strategy=fsdp")
        return self


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
