"""End-to-end `prepare` from JSONL against the tokenizer library's bare `encode_batch`, on the same texts in one run.

    python benchmarks/data_prepare.py [--repeats 5]

Texts: SEEDBED_TEST_DATA/corpus/small/*.jsonl where that is set, else Python's standard library. `prepare` reads and
parses JSON, encodes, packs, hashes, writes and flushes to disk; the bare rate is `Tokenizer.encode_batch` on a list
in memory. The two alternate; the ratio is taken within each pair. Target: 0.8 or better.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from seedbed.data.sources import read_documents

from seedbed.data.bpe import train_tokenizer
from seedbed.data.stdlib import stdlib_documents
from seedbed.data.store import prepare

VOCAB_SIZE = 8192


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def corpus(folder: Path) -> tuple[str, list[Path]]:
    """(what it is, JSONL files)."""
    root = os.environ.get("SEEDBED_TEST_DATA")
    if root:
        files = sorted((Path(root) / "corpus" / "small").glob("*.jsonl"))
        return f"{len(files)} files of corpus/small", files
    file = folder / "stdlib.jsonl"
    lines = (json.dumps({"id": document.id, "text": document.text}) for document in stdlib_documents())
    file.write_text("\n".join(lines), encoding="utf-8")
    return "Python's standard library", [file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        name, files = corpus(folder)
        texts = [document.text for document in read_documents(files)]
        tokenizer = train_tokenizer(texts, VOCAB_SIZE, folder / "tokenizer")
        bare = tokenizers.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        megabytes = sum(len(text.encode("utf-8")) for text in texts) / 1e6
        rates: list[tuple[float, float]] = []
        for _ in range(repeats + 1):
            bare_seconds = seconds(lambda: bare.encode_batch(texts, add_special_tokens=False))
            ours_seconds = seconds(lambda: prepare(read_documents(files), tokenizer, folder / "store", seq_len=512))
            rates.append((megabytes / bare_seconds, megabytes / ours_seconds))
        rates = rates[1:]  # the first pair warms caches
        ratios = [ours / plain for plain, ours in rates]
        print(f"{name}: {len(texts):,} documents, {megabytes:.1f} MB, {os.cpu_count()} cores, {repeats} pairs")
        print(f"bare encode_batch  {statistics.median(plain for plain, _ in rates):6.2f} MB/s (median)")
        print(f"prepare            {statistics.median(ours for _, ours in rates):6.2f} MB/s (median)")
        print(f"ratio              {statistics.median(ratios):6.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
