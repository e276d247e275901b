"""The training loop, top to bottom.

Evaluation, metrics and progress come in from outside; the loop itself knows a model, its optimizers and a loader.
"""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seedbed.config import Config
from seedbed.data.loader import Loader
from seedbed.data.split import IGNORED
from seedbed.errors import GuardStop, SignalStop
from seedbed.model import Decoder
from seedbed.optim.groups import Optimizers
from seedbed.optim.schedule import rate
from seedbed.train.checkpoint import prune, save_checkpoint, standing
from seedbed.train.metrics import Metrics, Tracker
from seedbed.train.objective import chunked_cross_entropy
from seedbed.train.progress import training_progress
from seedbed.train.signals import catch_signals

Evaluate = Callable[[], dict[str, Any]]
"""Measures the model as it is now; its result is written as a metrics row."""


@dataclass
class Job:
    """A training in progress: what it works on, and how far it is."""

    config: Config
    run_dir: Path
    model: Decoder
    optimizers: Optimizers
    loader: Loader
    device: torch.device
    receipt: dict[str, Any]
    tokenizer_dir: Path
    step: int = 0  # completed optimizer steps
    tokens: int = 0  # supervised tokens so far
    seconds: float = 0.0  # spent in steps so far, over all processes of the run


def train(job: Job, evaluate: Evaluate, trackers: list[Tracker]) -> None:
    """Run the job to its last step.

    Raises GuardStop before an update that is not finite, and SignalStop after saving when SIGINT or SIGTERM arrives.
    """
    config = job.config.train
    forward = torch.compile(job.model) if config.compile else job.model
    metrics = Metrics(job.run_dir, job.step, trackers)
    with closing(metrics), catch_signals() as stop, training_progress(config.steps, job.step) as progress:
        while job.step < config.steps:
            row = train_step(job, forward)
            done = job.step == config.steps
            if done or job.step % config.log_every == 0:
                metrics.write(row)
            progress(job.step, row["loss"], row["tokens_per_s"])
            if _due(config.eval_every, job.step, done):
                metrics.write({"kind": "eval", "step": job.step, **evaluate()})
            if stop.signum is not None or _due(config.checkpoint_every, job.step, done):
                path = save(job, metrics)
                if stop.signum is not None and not done:
                    raise SignalStop(stop.signum, f"saved {path} after step {job.step}; the same command resumes it")


def train_step(job: Job, forward: Callable[..., torch.Tensor]) -> dict[str, Any]:
    """One optimizer step over one batch; returns its metrics row.

    Each micro-batch's loss sum is divided by the token count of the whole batch, so that any accumulation gives the
    gradient of the mean over tokens.
    """
    config, began = job.config, time.perf_counter()
    batch = job.loader.next_batch()
    n_targets = int((batch.targets != IGNORED).sum())
    if n_targets == 0:
        raise GuardStop(
            f"step {job.step + 1}: no token of the batch is supervised; look at the warnings of `seedbed data "
            "prepare`, prepare with longer bins, or raise train.batch_size"
        )
    factor = rate(job.step, config.train.steps, config.optim.schedule)
    job.optimizers.set_rate(factor)
    loss = torch.zeros((), device=job.device, dtype=torch.float64)
    assert config.train.micro_batch_size
    for micro in zip(*(x.split(config.train.micro_batch_size) for x in batch), strict=True):
        ids, targets, doc_ids, positions = (x.to(job.device, non_blocking=True) for x in micro)  # [b, T]
        with torch.autocast(job.device.type, torch.bfloat16, enabled=config.train.precision == "bf16"):
            hidden = forward(ids, doc_ids, hidden=True, positions=positions)  # [b, T, D]
            part = chunked_cross_entropy(hidden, job.model.head_weight, targets, scale=1 / n_targets)
        part.backward()
        loss += part.detach()
    grad_norm = nn.utils.clip_grad_norm_(job.model.parameters(), config.train.clip_norm or math.inf)
    _guard(job, loss.item(), grad_norm.item())
    job.optimizers.step()
    job.optimizers.zero_grad()
    job.step += 1
    job.tokens += n_targets
    spent = time.perf_counter() - began
    job.seconds += spent
    return {
        "kind": "train",
        "step": job.step,
        "loss": loss.item(),
        "lr": config.optim.lr * factor,
        "grad_norm": grad_norm.item(),
        "tokens": job.tokens,
        "tokens_per_s": n_targets / spent,
        "seconds": job.seconds,
    }


def save(job: Job, metrics: Metrics) -> Path:
    """Write a checkpoint of the job and remove the oldest ones; raises as save_checkpoint does."""
    metrics.sync()
    path = save_checkpoint(job)
    prune(job.run_dir, job.config.train.keep_checkpoints, path)
    return path


def _due(every: int, step: int, done: bool) -> bool:
    """Every so many steps and at the end; 0 means only at the end, -1 never."""
    return every >= 0 and (done or (every > 0 and step % every == 0))


def _guard(job: Job, loss: float, grad_norm: float) -> None:
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise GuardStop(
            f"step {job.step + 1}: loss {loss}, gradient norm {grad_norm}; stopped before the update, "
            f"{standing(job.run_dir)}; a lower optim.lr or a longer warmup often helps, with --fresh or elsewhere"
        )
    if grad_norm == 0:
        raise GuardStop(
            f"step {job.step + 1}: every gradient is exactly 0, the model cannot learn; {standing(job.run_dir)}"
        )
