"""What a look at the weights during training costs (train.weights_every), and from which interval on it is below 2 %.

    python benchmarks/recording.py [--rounds 5]

Two decoders on random tokens, on this machine's CPU or GPU. Steps and looks are interleaved, so that a slow moment
of the machine hits both; times are medians over rounds.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from seedbed.analysis.bench import RandomStore
from seedbed.config import Config
from seedbed.parallel.world import World, pick_device
from seedbed.train.looks import weight_components
from seedbed.train.loop import train_step
from seedbed.train.setup import start

SHARE = 0.02  # of the time of the steps between two looks
SIZES = {
    "d 128, 4 layers, vocabulary 4,096, 16 x 256 tokens a step": [
        "model.vocab_size=4096", "model.d_model=128", "model.n_layers=4", "model.attention.n_heads=4",
        "model.max_seq_len=256", "train.batch_size=16",
    ],
    "d 512, 8 layers, vocabulary 8,192, 16 x 256 tokens a step": [
        "model.vocab_size=8192", "model.d_model=512", "model.n_layers=8", "model.attention.n_heads=8",
        "model.max_seq_len=256", "train.batch_size=16",
    ],
}  # fmt: skip


def seconds(world: World, work: Callable[[], object]) -> float:
    """Of ``work``, with what it asked of the device."""
    began = time.perf_counter()
    work()
    if world.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    world = World(pick_device("auto"))
    print(f"{world.device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, size in SIZES.items():
        config = Config.load(None, ["init.law=gamma", "init.gamma=1.0", "train.compile=false", *size])
        job = start(config, Path("unused"), RandomStore(config), world=world)
        seconds(world, lambda job=job: train_step(job))
        weight_components(job.model, world)
        steps, looks = [], []
        for _ in range(rounds):
            steps.append(seconds(world, lambda job=job: train_step(job)))
            looks.append(seconds(world, lambda job=job: weight_components(job.model, world)))
        step, look = statistics.median(steps), statistics.median(looks)
        print(name)
        print(f"  step {1e3 * step:.0f} ms, look {1e3 * look:.0f} ms: {look / step:.2f} steps")
        print(f"  below {SHARE:.0%} of the time from train.weights_every={math.ceil(look / step / SHARE)} on")


if __name__ == "__main__":
    main()
