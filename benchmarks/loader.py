"""How much faster each kind of store feeds batches than the quickstart's model trains, in one run.

    python benchmarks/loader.py [--rounds 5]

A store of each kind from a part of the standard library, 256 tokens a bin; an epoch of batches of recipes/cpu.yaml,
shuffled and without the thread that makes them ahead, beside steps of its model. Target: 50 times from each.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seedbed.config import Config
from seedbed.data.bpe import train_tokenizer
from seedbed.data.loader import Loader
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.stdlib import stdlib_records
from seedbed.data.store import Store
from seedbed.train.loop import train_step
from seedbed.train.setup import resolve, start

RECIPE = Path(__file__).parent.parent / "recipes" / "cpu.yaml"
SEQ_LEN, STEPS = 256, 3
KINDS = {
    "bin": {},
    "bin, bfd_split": {"packing": {"seq_len": SEQ_LEN, "strategy": "bfd_split"}},
    "hdf5": {"storage": {"format": "hdf5"}},
    "jsonl": {"storage": {"format": "jsonl"}},
}


def stores(folder: Path) -> dict[str, Store]:
    texts = folder / "texts.jsonl"
    records = list(stdlib_records(max_bytes=1_500_000))
    texts.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    train_tokenizer((record["text"] for record in records), 4096, folder / "tokenizer")
    made = {}
    for kind, sections in KINDS.items():
        tree = {"sources": [str(texts)], "tokenizer": str(folder / "tokenizer"), "packing": {"seq_len": SEQ_LEN}}
        prepare(spec_from(tree | sections, kind), folder / kind, workers=1)
        made[kind] = Store(folder / kind)
    return made


def rate(work: Callable[[], Any], times: int, tokens: int) -> float:
    """Tokens a second."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return times * tokens / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = stores(folder)
        config, store = resolve(Config.load(str(RECIPE), [f"data.store={made['bin'].path}", "train.steps=1000"]))
        job = start(config, folder / "run", store)
        batch = config.train.batch_size
        train_step(job)
        trained: list[float] = []
        fed: dict[str, list[float]] = {kind: [] for kind in made}
        for _ in range(rounds):
            trained.append(rate(lambda: train_step(job), STEPS, batch * SEQ_LEN))
            for kind, opened in made.items():
                # opened anew: nothing that an earlier round encoded is remembered
                split = Store(opened.path).split("train")
                loader = Loader(split, batch, 0, prefetch=0)
                fed[kind].append(rate(loader.next_batch, len(split) // batch, batch * SEQ_LEN) / trained[-1])
        print(f"training {statistics.median(trained):,.0f} tokens/s; batches of {batch} x {SEQ_LEN}")
        for kind, ratios in fed.items():
            print(f"{kind:16} {statistics.median(ratios):7.0f} times (from {min(ratios):.0f} to {max(ratios):.0f})")


if __name__ == "__main__":
    main()
