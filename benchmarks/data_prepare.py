"""`prepare` from files to a store, against the tokenizer library's bare `encode_batch` on the same texts in one run.

    python benchmarks/data_prepare.py [--repeats 3] [--memory]

Texts: three domains of SEEDBED_TEST_DATA/corpus (78 MB, English, Chinese, code) where that is set, else Python's
standard library. `prepare` reads compressed JSON, cleans, encodes, packs best-fit, hashes, writes and flushes to disk,
in a pool of two processes; the bare rate is the library's own, on two threads and a list in memory. The two alternate;
the ratio is taken within each pair. Target: 0.9. With --memory instead: the largest process at one and four times the
text.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers

from seedbed.data.bpe import train_tokenizer
from seedbed.data.document import content
from seedbed.data.inputs import list_inputs
from seedbed.data.prepare import prepare
from seedbed.data.records import documents
from seedbed.data.spec import Spec, spec_from
from seedbed.data.stdlib import stdlib_records
from seedbed.files.jsonl import ReadCounts

VOCAB_SIZE = 8192
DOMAINS = ("en_reference", "zh_classics", "code_other")


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def corpus(folder: Path) -> list[Path]:
    """Three domains."""
    found = everything(folder)
    return [file for file in found if file.name.split(".")[0] in (*DOMAINS, "stdlib")]


def everything(folder: Path) -> list[Path]:
    """The whole corpus; where there is none, a file of the standard library in ``folder``."""
    if root := os.environ.get("SEEDBED_TEST_DATA"):
        return sorted((Path(root) / "corpus").glob("*.jsonl.zst"))
    file = folder / "stdlib.jsonl"
    file.write_text("\n".join(map(json.dumps, stdlib_records())), encoding="utf-8")
    return [file]


def specification(files: list[Path], folder: Path) -> Spec:
    packing = {"strategy": "bfd_split", "seq_len": 1024}
    tree = {"sources": list(map(str, files)), "tokenizer": str(folder / "tokenizer"), "packing": packing}
    return spec_from(tree, "benchmark")


def largest_process(files: list[Path], folder: Path) -> float:
    """Megabytes of the largest process of a `prepare` in a fresh one."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import data_prepare; data_prepare.measure()"
    )
    arguments = [sys.executable, "-c", code, str(folder), *map(str, files)]
    return float(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def measure() -> None:
    """Run by `largest_process`."""
    folder, files = Path(sys.argv[1]), list(map(Path, sys.argv[2:]))
    prepare(specification(files, folder), folder / "store", workers=2)
    # not ru_maxrss for this process: it would be that of the one which started it
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(line for line in status if line.startswith("VmHWM")).split()[1]
    print(max(int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = corpus(folder)
        spec = specification(files, folder)
        texts = [content(d) for file in list_inputs(spec.sources) for d in documents(file, spec, ReadCounts())]
        train_tokenizer(texts, VOCAB_SIZE, folder / "tokenizer", max_bytes=5_000_000)
        bare = tokenizers.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
        megabytes = sum(len(text.encode("utf-8")) for text in texts) / 1e6
        if options.memory:
            for times in (1, 4):
                copies = [folder / f"{number}-{file.name}" for number in range(times) for file in files]
                for number, copy in enumerate(copies):
                    shutil.copyfile(files[number % len(files)], copy)
                print(f"largest process at {times}× the text: {largest_process(copies, folder):.0f} MB")
                shutil.rmtree(folder / "store")
            return
        print(f"{len(texts):,} documents, {megabytes:.1f} MB, {os.cpu_count()} cores, {options.repeats} pairs")
        rates: list[tuple[float, float]] = []
        for _ in range(options.repeats):
            bare_seconds = seconds(lambda: bare.encode_batch_fast(texts, add_special_tokens=False))
            ours_seconds = seconds(lambda: prepare(spec, folder / "store", workers=2))
            shutil.rmtree(folder / "store")
            rates.append((megabytes / bare_seconds, megabytes / ours_seconds))
        ratios = [ours / plain for plain, ours in rates]
        print(f"bare encode_batch  {statistics.median(plain for plain, _ in rates):6.2f} MB/s (median)")
        print(f"prepare            {statistics.median(ours for _, ours in rates):6.2f} MB/s (median)")
        print(f"ratio              {statistics.median(ratios):6.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
