"""The sections of training, and of the ranks that share it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from seedbed.config.section import Folder, Positive, Section


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
    steps or more on a GPU, of a model that is not split; on a CPU it was measured not to pay."""
    log_every: Positive = 1
    """Steps between rows of metrics.jsonl."""
    gradients_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps between looks at the gradient of each component: its scale, its zeros, a histogram; 0: never."""
    weights_every: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Steps between looks at the weights of each component: rank, alignment of rows, scale; 0: never. Training stands
    still meanwhile, on a CPU for about a quarter of a step of 4,096 tokens: below 2 % of the time from 15 on
    (benchmarks/recording.py)."""
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
    """fsdp over several ranks: parameters and optimizer state stay in the memory of the CPU."""
    reduce_each_pass: bool = False
    """fsdp, several passes a step: sum gradients over ranks after each, so that a rank keeps its share of them and not
    all; false: after the last alone, with fewer bytes between ranks."""
    timeout_s: Annotated[int, Field(gt=0, le=86400)] = 600
    """Seconds that a rank waits for the others within a step before the run stops; ten times that around files."""

    @model_validator(mode="after")
    def _unread(self) -> Self:
        for name in ("offload", "reduce_each_pass"):
            if getattr(self, name) and self.strategy != "fsdp":
                raise ValueError(f"{name}=true is not read with strategy={self.strategy}; set strategy=fsdp")
        return self
