"""How long a save blocks training, at once and beside the steps, at three sizes; in one run, as ratios.

    python benchmarks/checkpoints.py [--sizes 10M 50M 150M] [--rounds 3]

One rank on the CPU and AdamW, so that a checkpoint is three times the weights. Saves of both kinds take turns, so that
a slow moment of the machine hits both. The time until a checkpoint is on the disk includes its hashes; "longer steps"
is what the steps that ran meanwhile took more than plain ones.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from overheads import make_store

from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.train.loop import Job, train_step
from seedbed.train.metrics import Metrics, read_metrics
from seedbed.train.saver import Saver
from seedbed.train.setup import resolve, start

SIZES = {"10M": (256, 10), "50M": (640, 9), "150M": (1024, 11)}  # width, layers
SEQUENCES = 2  # a step, of 256 tokens


def step_seconds(job: Job) -> float:
    began = time.perf_counter()
    train_step(job)
    return time.perf_counter() - began


def one_save(job: Job, beside: bool, saver: Saver, plain: float) -> tuple[float, float, float, int]:
    """Seconds for which a save blocks, seconds until it is on the disk, seconds of longer steps; bytes."""
    saver.save()
    longer = 0.0
    while saver.busy:
        longer += step_seconds(job) - plain
        saver.poll(saver.writing)
    row = [row for row in read_metrics(job.run_dir) if row["kind"] == "checkpoint"][-1]
    assert beside or longer == 0
    return row["blocked_seconds"], row["written_seconds"], longer, row["bytes"]


def measure(size: str, store: Store, folder: Path, rounds: int) -> None:
    width, layers = SIZES[size]
    told = [f"data.store={store.path}", "optim.name=adamw", f"train.batch_size={SEQUENCES}", "train.device=cpu"]
    shape = [f"model.d_model={width}", f"model.n_layers={layers}", f"model.attention.n_heads={width // 64}"]
    config, _ = resolve(Config.load(None, [*told, *shape, "train.compile=false", "train.keep_checkpoints=1"]))
    folder.mkdir()
    job = start(config, folder, store)
    parameters = sum(parameter.numel() for parameter in job.model.parameters())
    metrics = Metrics(folder, 0, [])
    savers = {}
    for beside in (False, True):
        train = config.train.model_copy(update={"async_checkpoints": beside})
        job.config = config.model_copy(update={"train": train})
        savers[beside] = Saver(job, metrics)
    train_step(job)
    plain = 0.0
    found: dict[bool, list[tuple[float, float, float, int]]] = {False: [], True: []}
    for _ in range(rounds):
        for beside, saver in savers.items():
            plain = statistics.median(step_seconds(job) for _ in range(3))
            found[beside].append(one_save(job, beside, saver, plain))
    metrics.close()
    print(f"{size}: {parameters / 1e6:.0f}M parameters, {found[True][0][3] / 1e6:,.0f} MB, a step {plain:.2f} s")
    for beside, name in ((False, "at once"), (True, "beside the steps")):
        blocked, written, longer, _ = (statistics.median(values) for values in zip(*found[beside], strict=True))
        told = f"blocks {blocked:6.2f} s, on the disk after {written:6.2f} s, blocked share {blocked / written:.2f}"
        print(f"  {name:<17}{told}, longer steps {longer:+.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store = Store(make_store(Path(name)))
        for size in chosen.sizes:
            measure(size, store, Path(name) / size, chosen.rounds)


if __name__ == "__main__":
    main()
