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
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seedbed.config import Config
from seedbed.data.loader import Loader
from seedbed.data.split import IGNORED
from seedbed.errors import GuardStop, SignalStop
from seedbed.model import Decoder
from seedbed.optim.groups import Optimizers
from seedbed.optim.schedule import rate
from seedbed.parallel.world import World
from seedbed.parallel.wrap import accumulating
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
    forward: Callable[..., Tensor]
    """What stands for the model in a step: itself, compiled, or wrapped for several ranks."""
    optimizers: Optimizers
    loader: Loader
    world: World
    receipt: dict[str, Any]
    tokenizer_dir: Path
    step: int = 0  # completed optimizer steps
    tokens: int = 0  # supervised tokens so far
    seconds: float = 0.0  # spent in steps so far, over all processes of the run


def train(job: Job, evaluate: Evaluate, trackers: list[Tracker]) -> None:
    """Run the job to its last step, on all ranks alike.

    Raises GuardStop before an update that is not finite, and SignalStop after saving when SIGINT or SIGTERM arrives
    at any rank.
    """
    config, leads = job.config.train, job.world.leads
    metrics = Metrics(job.run_dir if leads else None, job.step, trackers)
    showing = training_progress(config.steps, job.step, quiet=not leads)
    with closing(metrics), catch_signals() as stop, showing as progress:
        while job.step < config.steps:
            row = train_step(job)
            done = job.step == config.steps
            if done or job.step % config.log_every == 0:
                metrics.write(row)
            progress(job.step, row["loss"], row["tokens_per_s"])
            if _due(config.eval_every, job.step, done):
                metrics.write({"kind": "eval", "step": job.step, **evaluate()})
            signum = job.world.max(stop.signum or 0)  # whichever rank it came to, all stop after the same step
            if signum or _due(config.checkpoint_every, job.step, done):
                path = save(job, metrics)
                if signum and not done:
                    raise SignalStop(signum, f"saved {path} after step {job.step}; the same command resumes it")


def train_step(job: Job) -> dict[str, Any]:
    """One optimizer step over one batch; returns its metrics row, the same on all ranks.

    Each micro-batch's loss sum is divided by the token count of the whole batch over all ranks, so that any
    accumulation and any number of ranks give the gradient of the mean over tokens.
    """
    config, world, began = job.config, job.world, time.perf_counter()
    batch = job.loader.next_batch()
    (n_targets,) = world.sum(int((batch.targets != IGNORED).sum()))
    if n_targets == 0:
        raise GuardStop(
            f"step {job.step + 1}: no token of the batch is supervised; look at the warnings of `seedbed data "
            "prepare`, prepare with longer bins, or raise train.batch_size"
        )
    factor = rate(job.step, config.train.steps, config.optim.schedule)
    job.optimizers.set_rate(factor)
    loss = torch.zeros((), device=world.device, dtype=torch.float64)
    assert config.train.micro_batch_size
    micros = list(zip(*(x.split(config.train.micro_batch_size) for x in batch), strict=True))
    for number, micro in enumerate(micros, start=1):
        ids, targets, doc_ids, positions = (x.to(world.device, non_blocking=True) for x in micro)  # [b, T]
        autocast = torch.autocast(world.device.type, torch.bfloat16, enabled=config.train.precision == "bf16")
        with accumulating(job.forward, last=number == len(micros)):
            with autocast:
                hidden = job.forward(ids, doc_ids, hidden=True, positions=positions)  # [b, T, D]
                # gradients are averaged over ranks
                part = chunked_cross_entropy(hidden, job.model.head_weight, targets, scale=world.size / n_targets)
            part.backward()
        loss += part.detach() / world.size
    grad_norm = clip(job.model, config.train.clip_norm)
    (total,) = world.sum(loss.item())
    _guard(job, total, grad_norm)
    job.optimizers.step()
    job.optimizers.zero_grad()
    job.step += 1
    job.tokens += int(n_targets)
    spent = time.perf_counter() - began
    job.seconds += spent
    return {
        "kind": "train",
        "step": job.step,
        "loss": total,
        "lr": config.optim.lr * factor,
        "grad_norm": grad_norm,
        "tokens": job.tokens,
        "tokens_per_s": n_targets / spent,
        "seconds": job.seconds,
    }


def clip(model: nn.Module, bound: float | None) -> float:
    """Scale the gradients of all parameters to a global norm of ``bound`` at most; returns the norm before that."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), bound or math.inf)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()


def save(job: Job, metrics: Metrics) -> Path:
    """Write a checkpoint of the job and remove the oldest ones; raises as save_checkpoint does."""
    metrics.sync()
    path = save_checkpoint(job)
    job.world.by_lead(lambda: prune(job.run_dir, job.config.train.keep_checkpoints, path))
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
