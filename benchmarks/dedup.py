"""Deduplication against `datasketch` with the same parameters, its growth with the number of documents, its memory.

    python benchmarks/dedup.py [--repeats 3] [--million] [FILE...]

Without files: documents of random words. Both sides take texts in memory to the list of near copies, in one thread, and
are timed by the CPU time of the process: 128 permutations on character 3-grams, threshold 0.7, 25 bands of 5 rows.
`datasketch` (update_batch on the set of 3-grams, then query and insert) sees every 20th document and is scaled by
characters, which favours it: its queries grow with the index; it does not verify its candidates either. Targets: 10
times as fast or better; 100,000 documents, of which a tenth are near copies, in little more than 10 times what 10,000
take; a few hundred bytes a document. ``--million`` goes on to a million documents of random words (4 GB of memory).
5,000 copies of one text, and documents of 2,000 characters that share a part, just under the threshold, so that all are
compared with all: the time is shown.
"""

import argparse
import random
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
from datasketch import MinHash, MinHashLSH

from seedbed.data.dedup import Removal, near_duplicates
from seedbed.data.minhash import signatures
from seedbed.data.sections import NearDuplicates
from seedbed.files.jsonl import read_jsonl

NEAR = NearDuplicates()
CHARS = 1000  # of a document where growth is measured


def ours(texts: list[str]) -> list[Removal]:
    signed = [signatures(texts, NEAR.ngram, NEAR.permutations)]
    return near_duplicates(signed, np.ones(len(texts), bool), texts.__getitem__, NEAR, lambda _: None)


def theirs(texts: list[str]) -> list[int]:
    index = MinHashLSH(threshold=NEAR.threshold, params=(NEAR.bands, NEAR.rows), num_perm=NEAR.permutations)
    removed = []
    for number, text in enumerate(texts):
        sketch = MinHash(num_perm=NEAR.permutations)
        sketch.update_batch([gram.encode() for gram in {text[i : i + 3] for i in range(len(text) - 2)}])
        if index.query(sketch):
            removed.append(number)
        else:
            index.insert(number, sketch)
    return removed


def seconds(work, texts: list[str]) -> float:
    start = time.process_time()
    work(texts)
    return time.process_time() - start


def random_words(rng: random.Random, documents: int, chars: int = CHARS) -> list[str]:
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(20_000)]
    return [" ".join(rng.choices(words, k=chars // 6)) for _ in range(documents)]


def pieces(texts: list[str], documents: int, rng: random.Random) -> list[str]:
    """Stretches of the texts in random order, of which each tenth is made a near copy of an earlier one."""
    found = [text[i : i + CHARS] for text in texts for i in range(0, len(text) - CHARS + 1, CHARS)]
    found = rng.sample(found, documents)
    for copy in range(10, documents, 10):
        original, at = found[rng.randrange(copy)], rng.randrange(CHARS)
        found[copy] = original[:at] + "a few words more" + original[at + 20 :]
    return found


def forms(rng: random.Random, documents: int, share: float) -> list[str]:
    """Documents that begin with the same text, of 2,000 characters."""
    own = random_words(rng, documents + 1, 2000)
    same = own.pop()[: int(2000 * share)]
    return [same + text[len(same) : 2000] for text in own]


def copies(rng: random.Random, documents: int) -> list[str]:
    """Near copies of one text, each with a number of its own in it."""
    (text,) = random_words(rng, 1)
    return [f"{text[: i % CHARS]} {i} {text[i % CHARS :]}" for i in range(documents)]


def bytes_a_document(texts: list[str]) -> float:
    """Peak of what the search allocates; signatures lie in a file, as in the pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signatures.npy"
        np.save(path, signatures(texts, NEAR.ngram, NEAR.permutations))
        signed, alive = [np.load(path, mmap_mode="r")], np.ones(len(texts), bool)
        tracemalloc.start()
        near_duplicates(signed, alive, texts.__getitem__, NEAR, lambda _: None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / len(texts)


def show_growth(sizes: list[list[str]], repeats: int) -> None:
    few, many = sizes
    growth = [seconds(ours, many) / seconds(ours, few) for _ in range(repeats)]
    ratio = f"{statistics.median(growth):.1f} ({min(growth):.1f} to {max(growth):.1f})"
    print(f"{len(many):,} documents take {ratio} times as long as {len(few):,}")
    for texts in sizes:
        print(f"peak memory of {len(texts):,} documents: {bytes_a_document(texts):.0f} bytes each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--million", action="store_true")
    arguments = parser.parse_args()
    rng = random.Random(0)
    texts = [value["text"] for path in arguments.files for _, value in read_jsonl(path)] or random_words(rng, 110_000)
    chars = sum(map(len, texts))
    sample = texts[::20]
    scale = chars / sum(map(len, sample))
    print(f"{len(texts):,} documents, {chars / 1e6:.0f}M characters, {arguments.repeats} pairs")

    pairs = [(seconds(theirs, sample) * scale, seconds(ours, texts)) for _ in range(arguments.repeats)]
    ratios = [their / our for their, our in pairs]
    print(f"datasketch  {statistics.median(their for their, _ in pairs):7.1f} s (from every 20th document)")
    print(f"ours        {statistics.median(our for _, our in pairs):7.1f} s, {len(ours(texts)):,} documents removed")
    print(f"ratio       {statistics.median(ratios):7.1f} (from {min(ratios):.1f} to {max(ratios):.1f})")

    show_growth([pieces(texts, documents, rng) for documents in (10_000, 100_000)], arguments.repeats)
    if arguments.million:
        texts = random_words(rng, 1_100_000)
        show_growth([pieces(texts, documents, rng) for documents in (100_000, 1_000_000)], 1)

    texts = copies(rng, 5000)
    print(f"{len(texts):,} copies of one text: {seconds(ours, texts):.1f} s")
    for share in (0.73, 0.7, 0.6):  # similarity 0.68, 0.66 and 0.57 on average
        for documents in (500, 1000, 2000):
            texts = forms(rng, documents, share)
            print(f"{documents:,} documents, {share:.0%} the same: {seconds(ours, texts):.1f} s")


if __name__ == "__main__":
    main()
