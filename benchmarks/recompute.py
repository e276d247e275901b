"""What recomputing activations costs in time, and what it saves in memory.

    python benchmarks/recompute.py [--rounds 6] [--threads 1]

Whole steps with parallel.recompute none, selective and block, in fp32, interleaved; CPU time over threads. Activation
bytes are what is there when a forward pass ends, beside what the cost model (analysis/cost.py) expects from shapes.
Goal: block costs 35 % of a step at most, and the activations fall to the expected share.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import get_args

import torch

from seedbed.analysis.bench import RandomStore, step_memory
from seedbed.analysis.cost import Layout, Recompute, kept_bytes, sizes
from seedbed.config import Config
from seedbed.parallel.world import World
from seedbed.train.loop import Job, train_step
from seedbed.train.setup import start

LENGTH, ROWS = 256, 8
MODEL = [
    "model.d_model=256", "model.n_layers=6", "model.attention.n_heads=4", "model.vocab_size=4096",
    f"model.max_seq_len={LENGTH}", f"train.batch_size={ROWS}", "train.compile=false", "train.device=cpu",
    "optim.name=adamw",
]  # fmt: skip


def begin(kind: str) -> Job:
    config = Config.load(None, [*MODEL, f"parallel.recompute={kind}"])
    return start(config, Path("unused"), RandomStore(config), world=World(torch.device("cpu")))


def seconds(job: Job, threads: int) -> float:
    """Of a step, CPU time over threads."""
    began = time.process_time()
    train_step(job)
    return (time.process_time() - began) / threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    kinds: tuple[Recompute, ...] = get_args(Recompute)
    jobs = {kind: begin(kind) for kind in kinds}
    memory = {kind: step_memory(job)[0]["activations"] for kind, job in jobs.items()}
    times = [{kind: seconds(job, arguments.threads) for kind, job in jobs.items()} for _ in range(arguments.rounds)]
    of = sizes(Config.load(None, MODEL), LENGTH)
    for kind in kinds:
        ratios = sorted(one[kind] / one["none"] for one in times)
        expected = kept_bytes(of, Layout(1, recompute=kind, rows=ROWS, precision="fp32"))
        print(
            f"{kind:<10} {1e3 * statistics.median(one[kind] for one in times):7.1f} ms, "
            f"{statistics.median(ratios):.2f}x none ({ratios[0]:.2f}-{ratios[-1]:.2f}); activations "
            f"{memory[kind] / 2**20:6.1f} MiB, expected {expected / 2**20:6.1f} MiB; "
            f"{memory[kind] / memory['none']:.1%} of none"
        )
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
