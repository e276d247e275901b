"""Training steps eager and compiled, at three shapes, and the number of steps from which compiling pays.

    python benchmarks/compile.py [--rounds 3] [--shape NAME] [--threads 1]

Whole steps of a run (train.compile=false and true, fp32, AdamW) on random tokens: bins that are one document each, and
bins of documents of a quarter of their length on average, which an eager model takes apart and a compiled one masks.
Rounds are interleaved. Times of steps are CPU time over threads, which other load on the machine hardly changes; the
time of compiling is that of the clock, without caches of earlier runs. A shape takes under two minutes of an idle core.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from seedbed.analysis.bench import RandomStore
from seedbed.config import Config
from seedbed.data.split import Batch
from seedbed.parallel.world import World
from seedbed.train.loop import Job, train_step
from seedbed.train.setup import start

SHAPES = {  # width, layers, heads, vocabulary, length, sequences a step
    "d64": (64, 4, 4, 2048, 256, 8),
    "d192": (192, 6, 6, 4096, 256, 8),
    "d384": (384, 6, 6, 8192, 512, 2),
}


def begin(shape: str, compiled: bool, packed: bool) -> Job:
    width, layers, heads, vocab, length, rows = SHAPES[shape]
    overrides = [
        f"model.d_model={width}", f"model.n_layers={layers}", f"model.attention.n_heads={heads}",
        f"model.vocab_size={vocab}", f"model.max_seq_len={length}", f"train.batch_size={rows}", "optim.name=adamw",
        f"train.compile={str(compiled).lower()}", "train.device=cpu", "train.steps=100000", "data.prefetch=0",
    ]  # fmt: skip
    config = Config.load(None, overrides)
    job = start(config, Path("unused"), RandomStore(config), world=World(torch.device("cpu")))
    if packed:
        job.loader.next_batch = lambda make=job.loader.next_batch: with_documents(make(), job.step)
    return job


def with_documents(batch: Batch, seed: int) -> Batch:
    """The batch with the beginnings of documents thrown in, four a row on average, elsewhere in each batch."""
    generator = torch.Generator().manual_seed(seed)
    begins = torch.rand(batch.ids.shape, generator=generator) < 4 / batch.ids.shape[1]
    return batch._replace(doc_ids=begins.cumsum(1))


def seconds(job: Job, steps: int, threads: int) -> float:
    """Of a step, CPU time over threads."""
    began = time.process_time()
    for _ in range(steps):
        train_step(job)
    return (time.process_time() - began) / steps / threads


def measure(shape: str, packed: bool, rounds: int, threads: int) -> None:
    torch.compiler.reset()
    eager, compiled = (begin(shape, way, packed) for way in (False, True))
    seconds(eager, 2, threads)
    began = time.perf_counter()
    for _ in range(3):
        train_step(compiled)
    first = time.perf_counter() - began
    steps = max(1, round(1.5 / seconds(eager, 2, threads)))
    pairs = [(seconds(eager, steps, threads), seconds(compiled, steps, threads)) for _ in range(rounds)]
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    compiling = first - 3 * theirs
    pays = f"from {compiling / (ours - theirs):,.0f} steps on" if ours > theirs else "never"
    print(
        f"{shape:<5} {'documents' if packed else 'whole bins':<10} eager {1e3 * ours:6.1f} ms, compiled "
        f"{1e3 * theirs:6.1f} ms, {statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f}); "
        f"compiling {compiling:.0f} s; pays {pays}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for shape in arguments.shape or SHAPES:
            for packed in (False, True):
                measure(shape, packed, arguments.rounds, arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
