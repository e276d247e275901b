"""The training loop, top to bottom.

Evaluation, metrics and progress come in from outside; the loop itself knows a model, its optimizers and a loader.
"""

import math
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seedbed.config import Config
from seedbed.data.loader import Loader
from seedbed.data.split import IGNORED, Batch
from seedbed.errors import GuardStop, SignalStop
from seedbed.files.steps import standing
from seedbed.model import Decoder
from seedbed.optim.groups import Optimizers
from seedbed.optim.schedule import rate
from seedbed.parallel.watch import watching
from seedbed.parallel.world import World
from seedbed.parallel.wrap import accumulating, compiles
from seedbed.train.guard import Guard, guard_row, in_words
from seedbed.train.looks import gradient_components, lost_updates, rounded_sample, weight_components
from seedbed.train.metrics import Metrics, Tracker
from seedbed.train.objective import cross_entropy_and_z
from seedbed.train.progress import training_progress
from seedbed.train.saver import Saver
from seedbed.train.signals import StopRequest, catch_signals, requested

Evaluate = Callable[[], dict[str, Any]]
"""Measures the model as it is now; its result is written as a metrics row."""
GoBack = Callable[[], int]
"""Puts the job where its newest checkpoint has it, but for the data; gives the position of that checkpoint there."""


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
    heldout: float | None = None  # nats per token of the weights as they are, where they were evaluated
    guard: Guard = field(default_factory=Guard)
    notices: Callable[[], list[float]] = list
    """What a rank has to tell the others, asked after its backward and added up along with the loss: each sum by itself
    would cost all a wait for the last."""


def train(job: Job, evaluate: Evaluate, go_back: GoBack, trackers: list[Tracker]) -> None:
    """Run the job to its last step, on all ranks alike.

    Raises GuardStop before an update that train.guard does not allow, and SignalStop after saving when SIGINT or
    SIGTERM arrives at any rank.
    """
    config, leads = job.config.train, job.world.leads
    metrics = job.world.together(lambda: Metrics(job.run_dir if leads else None, job.step, trackers))
    showing = training_progress(config.steps, job.step, quiet=not leads)
    watched = watching(job.world, job.run_dir, job.config.parallel.timeout_s)
    if leads and job.step < config.steps and compiles(job.config, job.world):
        print("compiling: the first step may take a minute", file=sys.stderr, flush=True)
    with closing(metrics), catch_signals() as stop, watched, showing as progress, Saver(job, metrics) as saver:
        job.notices = lambda: [*stop.counts(), metrics.failed, saver.writing]
        while job.step < config.steps:
            row = _step(job, saver, stop)
            job.heldout = None
            *signals, failed, writing = row.pop("notices")
            if failed:
                job.world.together(metrics.sync)
            saver.poll(writing)
            gradients = row.pop("gradients", None)
            if row["kind"] == "guard":
                saver.wait()  # what is on its way may be what a rollback goes to
                _pass_over(job, row, go_back, metrics)
                if row["action"] == "rollback":
                    continue
            done = job.step == config.steps
            if row["kind"] == "train":
                if done or job.step % config.log_every == 0:
                    metrics.write(row)
                if gradients is not None:
                    metrics.write({"kind": "gradients", "step": job.step, "components": gradients})
                progress(job.step, row["loss"], row["tokens_per_s"])
            if config.weights_every and job.step % config.weights_every == 0:
                job.world.at(job.step, "weights")
                found = weight_components(job.model, job.world)
                metrics.write({"kind": "weights", "step": job.step, "tokens": job.tokens, "components": found})
            if _due(config.eval_every, job.step, done):
                job.world.at(job.step, "evaluation")
                found = evaluate()
                job.heldout = found["nats_per_token"]
                metrics.write({"kind": "eval", "step": job.step, **found})
            signum = requested(signals)  # whichever rank it came to, all stop after the same step
            if signum or _due(config.checkpoint_every, job.step, done):
                job.world.at(job.step, "checkpoint")
                path = saver.save()
                if signum and not done:
                    saver.wait()
                    raise SignalStop(signum, f"saved {path} after step {job.step}; the same command resumes it")
        saver.wait()
        job.world.together(metrics.sync)


def _step(job: Job, saver: Saver, stop: StopRequest) -> dict[str, Any]:
    """One step. A run that stops itself lets the save on its way end first, so that it names the last checkpoint.

    Raises SignalStop where a signal ended the compiler too, as Ctrl-C at a terminal does.
    """
    try:
        return train_step(job)
    except GuardStop as error:
        saver.settle()
        raise GuardStop(f"{error}; {standing(job.run_dir)}") from error
    except RuntimeError as error:
        if stop.signum is None:
            raise
        from torch._dynamo.exc import BackendCompilerFailed  # takes seconds where nothing was compiled

        if not isinstance(error, BackendCompilerFailed):
            raise
        why = f"stopped while the model was compiled; {standing(job.run_dir)}"
        raise SignalStop(stop.signum, f"{why}, and the same command goes on") from error


def train_step(job: Job) -> dict[str, Any]:
    """One optimizer step over one batch; returns its metrics row, the same on all ranks: of kind "train", or of kind
    "guard" where no update was made. "notices" are those of the job, added up.
    """
    config, world, began = job.config, job.world, time.perf_counter()
    number, position = job.step + 1, job.loader.position
    world.at(number, "data")
    batch = job.loader.next_batch()
    world.at(number, "count")
    (n_targets,) = world.sum(int((batch.targets != IGNORED).sum()))
    if n_targets == 0:
        raise GuardStop(
            f"step {number}: no token of the batch is supervised; look at the warnings of `seedbed data "
            "prepare`, prepare with longer bins, or raise train.batch_size"
        )
    factor = rate(job.step, config.train.steps, config.optim.schedule)
    job.optimizers.set_rate(factor)
    loss, z_loss = backward(job, batch, n_targets)
    every = config.train.gradients_every
    looks = {"gradients": gradient_components(job.model, world)} if every and number % every == 0 else {}
    world.at(number, "clipping")
    norm = clip(job.model, config.train.clip_norm)
    loss, z_loss, norms, *noticed = world.sum(loss, z_loss, norm, *job.notices())
    norm = norms / world.size  # the very same number on each rank, so that all judge alike
    verdict = job.guard.decide(loss, norm, config.train.guard)
    if verdict.action == "stop":
        _stop(job, verdict.why)
    elif verdict.action == "update":
        world.at(number, "optimizer")
        sample = rounded_sample(job.model)
        job.optimizers.step()
        lost = {"lost_updates": lost_updates(sample, world)} if sample else {}
        z = {"z_loss": z_loss} if config.train.z_loss else {}
        job.tokens += int(n_targets)
        row = {"kind": "train", "step": number, "loss": loss, "lr": config.optim.lr * factor, "grad_norm": norm}
        row |= {**z, **lost, **looks, "tokens": job.tokens}
    else:
        row = guard_row(number, verdict, (loss, norm), [position, job.loader.position])
    job.optimizers.zero_grad()
    job.step += verdict.action != "rollback"
    spent = time.perf_counter() - began
    job.seconds += spent
    return row | {"tokens_per_s": n_targets / spent, "seconds": job.seconds, "notices": noticed}


def backward(job: Job, batch: Batch, n_targets: float) -> tuple[float, float]:
    """Leave the gradient of a batch, over all ranks, at the parameters; returns this rank's part of loss and z-loss.

    Each micro-batch's loss sum is divided by the token count of the whole batch over all ranks, so that any
    accumulation and any number of ranks give the gradient of the mean over tokens.
    """
    config, world = job.config.train, job.world
    assert config.micro_batch_size
    sums = torch.zeros(2, device=world.device, dtype=torch.float64)
    micros = list(zip(*(x.split(config.micro_batch_size) for x in batch), strict=True))
    for number, micro in enumerate(micros, start=1):
        ids, targets, doc_ids, positions = (x.to(world.device, non_blocking=True) for x in micro)  # [b, T]
        autocast = torch.autocast(world.device.type, torch.bfloat16, enabled=config.precision == "bf16")
        with accumulating(job.forward, summing=number == len(micros) or job.config.parallel.reduce_each_pass):
            with autocast:
                world.at(job.step + 1, "forward")
                hidden = job.forward(ids, doc_ids, hidden=True, positions=positions)  # [b, T, D]
                world.at(job.step + 1, "loss")
                scale = world.size / n_targets  # gradients are averaged over ranks
                part, z = cross_entropy_and_z(hidden, job.model.head_weight, targets, scale, config.z_loss)
            world.at(job.step + 1, "backward")
            part.backward()
        sums += torch.stack((part.detach() - z, z))
    loss, z_loss = (sums / world.size).tolist()
    return loss, z_loss


def clip(model: nn.Module, bound: float | None) -> float:
    """Scale the gradients of all parameters to a global norm of ``bound`` at most; returns the norm before that."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), bound or math.inf)
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()


def _due(every: int, step: int, done: bool) -> bool:
    """Every so many steps and at the end; 0 means only at the end, -1 never."""
    return every >= 0 and (done or (every > 0 and step % every == 0))


def _pass_over(job: Job, row: dict[str, Any], go_back: GoBack, metrics: Metrics) -> None:
    """Tell of a batch that made no update, after going back where that is due."""
    if row["action"] == "rollback":
        row["samples"][0] = go_back()
        job.world.together(lambda: metrics.cut(job.step))
        row["step"] = job.step + 1  # of what is made anew: a resumption before it comes to the same rollback by itself
    metrics.write(row)
    if job.world.leads:
        print(in_words(row), file=sys.stderr, flush=True)


def _stop(job: Job, why: str) -> NoReturn:
    raise GuardStop(
        f"step {job.step + 1}: {why}; stopped before the update; a lower optim.lr or a longer warmup often helps, with "
        "--fresh or elsewhere, and train.guard can skip such batches or go back"
    )
