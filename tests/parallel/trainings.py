"""A few steps of one tiny training, on as many ranks as there are."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tiny import config

from seedbed.data.split import IGNORED, Batch
from seedbed.init.sharding import read_whole
from seedbed.parallel.world import World, open_world
from seedbed.train.loop import train_step
from seedbed.train.setup import resolve, start

STEPS = 20


class Trained(NamedTuple):
    losses: list[float]
    norms: list[float]
    drawn: str
    """Hash of all weights before the first step."""
    samples: list[list[list[int]]]
    """Of each step this rank's sequences, by their hash."""


def arm(strategy: str, *overrides: str) -> tuple[str, ...]:
    """A configuration; the batch is large enough for four ranks and for four passes on each of two."""
    return (f"parallel.strategy={strategy}", "train.batch_size=8", f"train.steps={STEPS}", *overrides)


def digest(*tensors: torch.Tensor) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def training(store: Path, overrides: tuple[str, ...], world: World, steps: int = STEPS) -> Trained:
    chosen, opened = resolve(config(store, Path("unused"), *overrides))
    job = start(chosen, Path("unused"), opened, world=world)
    drawn = digest(*(read_whole(parameter) for parameter in job.model.parameters()))
    samples, make = [], job.loader.next_batch

    def watched() -> Any:
        batch = make()
        samples.append([digest(row, targets) for row, targets in zip(batch.ids, batch.targets, strict=True)])
        return batch

    job.loader.next_batch = watched
    rows = [train_step(job) for _ in range(steps)]
    return Trained([row["loss"] for row in rows], [row["grad_norm"] for row in rows], drawn, samples)


def uneven(store: Path, overrides: tuple[str, ...], world: World) -> dict[str, torch.Tensor]:
    """Weights after one step of a batch of four rows: 11 and 101 supervised tokens, none, and one."""
    chosen, opened = resolve(config(store, Path("unused"), "train.batch_size=4", "train.precision=fp64", *overrides))
    length = 128
    job = start(
        chosen.model_copy(update={"model": chosen.model.model_copy(update={"max_seq_len": length})}),
        Path("unused"),
        opened,
        world=world,
    )
    ids = torch.arange(4 * length).view(4, length) % opened.header["vocab_size"]
    targets = ids.roll(-1, 1)
    for row, supervised in enumerate((11, 101, 0, 1)):
        targets[row, supervised:] = IGNORED
    places = torch.arange(length).expand(4, length)
    share = slice(world.rank * 4 // world.size, (world.rank + 1) * 4 // world.size)
    job.loader.next_batch = lambda: Batch(*(x[share] for x in (ids, targets, torch.zeros_like(ids), places)))
    train_step(job)
    return {name: read_whole(parameter) for name, parameter in job.model.named_parameters()}


class Results(NamedTuple):
    """Of one rank."""

    trained: dict[str, Trained]
    uneven: dict[str, dict[str, torch.Tensor]]


def results(store: Path, arms: dict[str, tuple[str, ...]], uneven_arms: dict[str, tuple[str, ...]]) -> Results:
    """All arms, one after another, on this rank."""
    with open_world("cpu", 60) as world:
        return Results(
            {name: training(store, overrides, world) for name, overrides in arms.items()},
            {name: uneven(store, overrides, world) for name, overrides in uneven_arms.items()},
        )
