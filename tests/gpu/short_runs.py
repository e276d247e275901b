"""A few steps of a tiny training on a device."""

from pathlib import Path

from tiny import config

from seedbed.parallel.world import World, open_world, pick_device
from seedbed.train.loop import Job, train_step
from seedbed.train.setup import resolve, start

STEPS = 8
GENTLE = ("train.batch_size=8", "train.micro_batch_size=4", f"train.steps={STEPS}", "optim.lr=1e-3")
"""Two passes a step; a rate at which rounding does not grow within so few steps."""


def job(store: Path, device: str, *overrides: str, world: World | None = None) -> Job:
    chosen, opened = resolve(config(store, Path("unused"), *GENTLE, f"train.device={device}", *overrides))
    return start(chosen, Path("unused"), opened, world=world or World(pick_device(device)))


def losses(store: Path, device: str, *overrides: str, world: World | None = None) -> list[float]:
    """Mean cross-entropy of each step, in nats."""
    running = job(store, device, *overrides, world=world)
    return [train_step(running)["loss"] for _ in range(STEPS)]


def losses_on_ranks(store: Path, device: str, arms: dict[str, tuple[str, ...]]) -> dict[str, list[float]]:
    """Of each arm, on this rank."""
    with open_world(device, 120) as world:
        return {name: losses(store, device, *overrides, world=world) for name, overrides in arms.items()}
