"""What an initialization of S1's 1.2B model takes: the plan on the meta device, and the draw against a plain fill.

    python benchmarks/init.py

The plain fill is ``torch.nn.init.normal_`` over the same tensors; the two take turns, tensors stay where they are.
Seconds are of one thread's CPU, which other work on the machine hardly changes. About 5 GB of memory.
"""

import statistics
import time
from pathlib import Path

import torch
from torch import nn

from seedbed.config import Config
from seedbed.facts.table import parameter_facts
from seedbed.init import apply_plan, make_plan, materialize_
from seedbed.init.apply import draw
from seedbed.laws import Distribution
from seedbed.model import Decoder

RECIPE = Path(__file__).parent.parent / "recipes" / "astrai-1.2b.yaml"
ROUNDS = 3


def fill(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)


def main() -> None:
    torch.set_num_threads(1)
    config = Config.load(str(RECIPE))
    began = time.process_time()
    with torch.device("meta"):
        model = Decoder(config.model)
    plan = make_plan(parameter_facts(model), config.init)
    planned = time.process_time() - began
    materialize_(model)
    apply_plan(model, plan, 0)  # the first time also touches every page
    pairs = []
    for _ in range(ROUNDS):
        times = []
        for work in (lambda: fill(model), lambda: apply_plan(model, plan, 0)):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        pairs.append(times)
    ratios = sorted(ours / plain for plain, ours in pairs)
    print(f"{plan.n_parameters / 1e9:.3f}B parameters, torch {torch.__version__}, 1 thread")
    print(f"model and plan on the meta device {planned:.2f} s")
    print(
        f"nn.init.normal_ {statistics.median(plain for plain, _ in pairs):.1f} s, "
        f"apply_plan {statistics.median(ours for _, ours in pairs):.1f} s: "
        f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    )
    times = []
    for seed in range(ROUNDS):
        began = time.process_time()
        draw((2048, 2048), Distribution("spectrum", 0.02, decay=5.0), seed, "w")
        times.append(time.process_time() - began)
    print(f"a shaped spectrum of 2048 x 2048: {statistics.median(times):.1f} s ({min(times):.1f}-{max(times):.1f})")


if __name__ == "__main__":
    main()
