"""Two ranks of one thread each (DDP) against one process of two threads, same model, same batch.

    python benchmarks/ddp.py [--rounds 8]

Two processes. In turn both are the ranks of one training, and the first alone trains another one on both threads, the
second waiting idle; so a slow moment of the machine hits both. Two idle cores are needed: ranks wait for the slower of
them. Goal: 0.8 of the rate of the one process.
"""

import argparse
import os
import socket
import statistics
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

from seedbed.analysis.bench import RandomStore
from seedbed.config import Config
from seedbed.parallel.world import World, open_world
from seedbed.train.loop import Job, train_step
from seedbed.train.setup import start

MODEL = [
    "model.d_model=192", "model.n_layers=4", "model.attention.n_heads=4", "model.vocab_size=4096",
    "model.max_seq_len=256", "train.batch_size=8", "train.compile=false", "train.device=cpu", "optim.name=adamw",
]  # fmt: skip
CORES = 2


def begin(world: World) -> Job:
    config = Config.load(None, MODEL)
    return start(config, Path("unused"), RandomStore(config), world=world)


def seconds(job: Job) -> float:
    began = time.perf_counter()
    train_step(job)
    return time.perf_counter() - began


def rank(number: int, port: int, rounds: int) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {k: str(v) for k, v in {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": CORES, **address}.items()}
    with open_world("cpu", 600) as world:
        torch.set_num_threads(1)
        shared = begin(world)
        alone = begin(World(world.device)) if world.leads else None
        pairs = []
        for _ in range(rounds + 1):
            torch.set_num_threads(1)
            together = seconds(shared)
            torch.set_num_threads(CORES)
            # the others wait for rank 0's word in a system call
            pairs.append((world.by_lead(lambda: seconds(alone) if alone else 0.0), together))
    if world.leads:
        report(pairs[1:])


def report(pairs: list[tuple[float, float]]) -> None:
    one, two = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(f"one process, {CORES} threads: {1e3 * one:7.1f} ms a step")
    print(f"{CORES} ranks, one thread:     {1e3 * two:7.1f} ms a step")
    print(f"rate of the ranks: {statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f}; goal 0.8)")
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    rounds = parser.parse_args().rounds
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank, (port, rounds), CORES)  # pyright: ignore


if __name__ == "__main__":
    main()
