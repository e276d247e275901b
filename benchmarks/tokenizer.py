"""Training a tokenizer against the tokenizer library's bare trainer, on the same texts in one run; and its memory.

    python benchmarks/tokenizer.py [--repeats 3]

Texts: SEEDBED_TEST_DATA/corpus/small/*.jsonl where that is set, else Python's standard library. `train_tokenizer`
samples, trains, writes, flushes and loads again; bare is `Tokenizer.train_from_iterator` on a list in memory, with the
same split into pieces. The two alternate; the ratio is taken within each pair. Target: 1.1 or less. Peak memory is that
of processes of their own, which read a quarter of the texts and all of them and may train on a quarter.
"""

import argparse
import os
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers, trainers

from seedbed.data.bpe import BOS, EOS, train_tokenizer
from seedbed.data.stdlib import stdlib_records
from seedbed.files.jsonl import read_jsonl

VOCAB_SIZE = 8192
NO_LIMIT = 2**40


def corpus() -> Iterator[str]:
    """Texts, domains alternating."""
    root = os.environ.get("SEEDBED_TEST_DATA")
    if not root:
        yield from (record["text"] for record in stdlib_records())
        return
    files = [read_jsonl(file) for file in sorted((Path(root) / "corpus" / "small").glob("*.jsonl"))]
    while files:
        for file in list(files):
            line = next(file, None)
            if line is None:
                files.remove(file)
            else:
                yield line[1]["text"]


def train(texts: Iterator[str] | list[str], folder: Path, max_bytes: int = NO_LIMIT) -> None:
    train_tokenizer(texts, VOCAB_SIZE, folder, max_bytes=max_bytes, max_document_bytes=max_bytes)


def train_bare(texts: list[str], like: Path) -> None:
    """The library alone, with the pieces of the tokenizer at ``like``."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.Tokenizer.from_file(str(like / "tokenizer.json")).pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_megabytes(documents: int, max_bytes: int, folder: Path) -> int:
    """Most memory that this process held while it trained on the first ``documents`` texts (Linux)."""
    train(islice(corpus(), documents), folder, max_bytes)
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) // 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    texts = list(corpus())
    size = sum(len(text.encode("utf-8")) for text in texts)
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB, vocabulary {VOCAB_SIZE}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tokenizer"
        train(texts, folder)  # warms caches
        pairs = []
        for _ in range(repeats):
            pairs.append((seconds(lambda: train(texts, folder)), seconds(lambda: train_bare(texts, folder))))
        ratios = [ours / bare for ours, bare in pairs]
        print(f"bare trainer     {statistics.median(bare for _, bare in pairs):6.1f} s (median of {repeats})")
        print(f"train_tokenizer  {statistics.median(ours for ours, _ in pairs):6.1f} s (median)")
        print(f"ratio            {statistics.median(ratios):6.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")
        for documents, max_bytes in ((len(texts) // 4, size // 4), (len(texts), size // 4), (len(texts), NO_LIMIT)):
            with get_context("spawn").Pool(1) as pool:
                peak = pool.apply(peak_megabytes, (documents, max_bytes, folder))
            limit = "all of it" if max_bytes == NO_LIMIT else f"at most {max_bytes / 1e6:.1f} MB"
            print(f"peak memory      {peak:6,} MB reading {documents:,} documents, training on {limit}")


if __name__ == "__main__":
    main()
