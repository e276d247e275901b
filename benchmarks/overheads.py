"""What a run costs beside its steps: resuming, evaluating, metrics, saving; in one run, as ratios to a plain step.

    python benchmarks/overheads.py

The model of recipes/cpu.yaml on a part of the standard library. Rounds of plain, resumed and just evaluated steps are
interleaved, so that a slow moment of the machine hits all of them.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

from seedbed.api import heldout_evaluation
from seedbed.config import Config
from seedbed.data.bpe import train_tokenizer
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.stdlib import stdlib_records
from seedbed.data.store import Store
from seedbed.train.loop import Job, train_step
from seedbed.train.metrics import Metrics
from seedbed.train.saver import Saver
from seedbed.train.setup import resolve, start

RECIPE = Path(__file__).parent.parent / "recipes" / "cpu.yaml"
ROUNDS, STEPS = 5, 4


def make_store(folder: Path) -> Path:
    records = list(stdlib_records(max_bytes=1_000_000))
    texts = folder / "texts.jsonl"
    texts.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    train_tokenizer((record["text"] for record in records), 4096, folder / "tokenizer")
    tree = {
        "sources": [{"path": str(texts), "split_field": "split"}],
        "tokenizer": str(folder / "tokenizer"),
    }
    prepare(spec_from(tree, "benchmark"), folder / "store", workers=1)
    return folder / "store"


def step_seconds(job: Job) -> float:
    """Median over a few steps."""
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        train_step(job)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def begin(config: Config, run: Path, store: Store) -> Job:
    run.mkdir(exist_ok=True)
    return start(config, run, store)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, store = resolve(Config.load(str(RECIPE), [f"data.store={make_store(folder)}", "train.steps=1000"]))
        plain, evaluated = begin(config, folder / "plain", store), begin(config, folder / "evaluated", store)
        original = begin(config, folder / "resumed", store)
        step_seconds(original)
        metrics = Metrics(original.run_dir, 0, [])
        began = time.perf_counter()
        with Saver(original, metrics) as saver:
            saver.save()
        saving = time.perf_counter() - began
        resumed = begin(config, folder / "resumed", store)
        evaluate = heldout_evaluation(evaluated, store)
        step_seconds(plain)
        times: dict[str, list[float]] = {"plain": [], "resumed": [], "after an evaluation": []}
        for _ in range(ROUNDS):
            times["plain"].append(step_seconds(plain))
            times["resumed"].append(step_seconds(resumed))
            evaluate()
            times["after an evaluation"].append(step_seconds(evaluated))
        row = train_step(plain)
        began = time.perf_counter()
        for _ in range(1000):
            metrics.write(row)
        writing = (time.perf_counter() - began) / 1000
        metrics.close()
    step = statistics.median(times["plain"])
    print(f"plain step {1e3 * step:.1f} ms, recipes/cpu.yaml")
    for name in ("resumed", "after an evaluation"):
        ratios = sorted(a / b for a, b in zip(times[name], times["plain"], strict=True))
        print(f"step {name:<20} {statistics.median(ratios):.2f}x a plain one ({ratios[0]:.2f}-{ratios[-1]:.2f})")
    print(f"a row of metrics.jsonl {1e6 * writing:.0f} us, {writing / step:.2%} of a step")
    print(f"a checkpoint {1e3 * saving:.0f} ms, {saving / step:.2f} steps")


if __name__ == "__main__":
    main()
