"""Two ranks of one thread each (DDP) against one process of two threads, same model, same batch.

    python benchmarks/ddp.py [--rounds 3] [--steps 4]

Three processes, each started with its number of OpenMP threads: the two ranks of one training, and one that trains
alone. They take turns, the others waiting idle, so that a slow hour of the machine hits both. Two idle cores are
needed: ranks wait for the slower of them. Under three minutes. Goal: 0.8 of the rate of the one process.
"""

import argparse
import os
import socket
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.multiprocessing as mp

from seedbed.analysis.bench import RandomStore
from seedbed.config import Config
from seedbed.parallel.world import open_world
from seedbed.train.loop import train_step
from seedbed.train.setup import start

MODEL = [
    "model.d_model=384", "model.n_layers=6", "model.attention.n_heads=6", "model.vocab_size=8192",
    "model.max_seq_len=512", "train.batch_size=8", "train.compile=false", "train.device=cpu", "optim.name=adamw",
]  # fmt: skip
CORES = 2


def train(turns: Connection, steps: int) -> None:
    """One process: a step before anything is timed, then ``steps`` of them whenever it is its turn."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with open_world("cpu", 600) as world:
        config = Config.load(None, MODEL)
        job = start(config, Path("unused"), RandomStore(config), world=world)
        train_step(job)
        turns.send(0.0)
        while turns.recv():
            began = time.perf_counter()
            for _ in range(steps):
                train_step(job)
            turns.send((time.perf_counter() - began) / steps)


def begin(ranks: int, steps: int) -> list[Connection]:
    """Start the processes of one training, each with its share of the cores; returns their ends once all are ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ends = []
    for rank in range(ranks):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in (place | {"OMP_NUM_THREADS": CORES // ranks}).items()}
        ours, theirs = mp.Pipe()
        mp.get_context("spawn").Process(target=train, args=(theirs, steps), daemon=True).start()
        theirs.close()
        ends.append(ours)
    for end in ends:
        end.recv()
    return ends


def turn(ends: list[Connection]) -> float:
    """Seconds of a step, of the slowest process."""
    for end in ends:
        end.send(True)
    return max(end.recv() for end in ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    alone, together = begin(1, arguments.steps), begin(CORES, arguments.steps)
    pairs = [(turn(alone), turn(together)) for _ in range(arguments.rounds)]
    for end in (*alone, *together):
        end.send(False)
    one, two = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(f"one process, {CORES} threads: {1e3 * one:7.1f} ms a step")
    print(f"{CORES} ranks, one thread:     {1e3 * two:7.1f} ms a step")
    print(f"rate of the ranks: {statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f}; goal 0.8)")
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
