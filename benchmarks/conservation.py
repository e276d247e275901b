"""Where every token of a corpus goes, stage by stage, and whether each document comes back as it went in.

    python benchmarks/conservation.py

The corpus is SEEDBED_TEST_DATA/corpus (ten domains, English and Chinese, 257M characters) where that is set, else
Python's standard library. It is prepared with filters, exact and near copies, held-out documents and `bfd`, which cuts
what is longer than a bin; then packed again with `simple`. What the stages say is compared with a count of its own: the
tokenizer library's, of the texts as the files have them. Ends with 1 where a token or a document is lost or invented.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from data_prepare import VOCAB_SIZE, everything

from seedbed.data.bpe import train_tokenizer
from seedbed.data.document import SplitName
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.store import SPLITS, Store
from seedbed.files.jsonl import read_jsonl

SEQ_LEN = 1024
BATCH = 1000


class Given(NamedTuple):
    """A document as its file has it."""

    domain: str
    tokens: int
    cut: bytes
    """Hash of the ids that `bfd` stores."""
    text: bytes
    """Hash of the text."""


class Count(NamedTuple):
    documents: int
    tokens: int | None = None
    """None where a stage has not encoded anything yet."""

    def text(self) -> str:
        return f"{self.documents:>12,} {'' if self.tokens is None else f'{self.tokens:,}':>14}"


class Row(NamedTuple):
    what: str
    told: Count
    counted: Count

    @property
    def balances(self) -> bool:
        same = self.told.tokens is None or self.told.tokens == self.counted.tokens
        return same and self.told.documents == self.counted.documents


def digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def given(files: Sequence[Path], tokenizer: tokenizers.Tokenizer, ends: tuple[int, int]) -> dict[str, Given]:
    """All documents by the place where they stand."""
    found: dict[str, Given] = {}
    for file in files:
        rows = [(f"{file}:{number}", row) for number, row in read_jsonl(file)]
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            encoded = tokenizer.encode_batch_fast([row["text"] for _, row in batch], add_special_tokens=False)
            for (where, row), encoding in zip(batch, encoded, strict=True):
                ids = np.array([ends[0], *encoding.ids, ends[1]], "<u2")
                hashes = digest(ids[:SEQ_LEN].tobytes()), digest(row["text"].encode("utf-8"))
                found[where] = Given(row["domain"], len(ids), *hashes)
    return found


def places(file: Path, key: str) -> list[str]:
    return [row[key] for _, row in read_jsonl(file)]


def documents(store: Store, split: SplitName) -> Iterator[tuple[str, np.ndarray]]:
    """Domain and stored ids of each document."""
    domain, parts = "", []
    for index in range(len(store.split(split))):
        segments, real = store.split(split).segments(index)
        ids = store.split(split).tokens(index).ids
        for segment, end in zip(segments, np.append(segments["offset"][1:], real), strict=True):
            if segment["position"] == 0 and parts:
                yield domain, np.concatenate(parts)
                parts = []
            domain = store.header["groups"][segment["group"]]["domain"]
            parts.append(ids[segment["offset"] : end])
    if parts:
        yield domain, np.concatenate(parts)


def specification(files: Sequence[Path], folder: Path, strategy: str) -> dict[str, Any]:
    return {
        "sources": [str(file) for file in files],
        "tokenizer": str(folder / "tokenizer"),
        "on_bad": "skip",
        "keep_rejects": True,
        "min_chars": 200,
        "filters": {"char_repetition": {"n": 10, "max_share": 0.6}},
        "dedup": {"exact": True, "near": {}},
        "packing": {"strategy": strategy, "seq_len": SEQ_LEN},
    }


def tokens_in(folder: Path, pattern: str) -> int:
    return sum(file.stat().st_size // 2 for file in folder.glob(pattern))


def stages(out: Path, header: dict[str, Any], all_given: dict[str, Given], kept: dict[str, Given]) -> Iterator[Row]:
    """What each stage left in its folder against what went into it."""

    def facts(stage: str) -> list[dict[str, Any]]:
        return [json.loads(file.read_text())["facts"] for file in sorted((out / "work" / stage).glob("*/unit.json"))]

    def count(wheres: Iterable[str]) -> Count:
        tokens = [all_given[where].tokens for where in wheres]
        return Count(len(tokens), sum(tokens))

    def planned(prefix: str) -> tuple[int, int]:
        documents, tokens = (
            sum(group[prefix + unit] for group in header["groups"]) for unit in ("documents", "tokens")
        )
        return documents, tokens

    rejected, copies = places(out / "rejects.jsonl", "where"), places(out / "duplicates.jsonl", "removed")
    skipped, pieces = sum(header["skipped"].values()), [p for fact in facts("clean") for p in fact["pieces"]]
    yield Row("read", Count(skipped + sum(piece["documents"] for piece in pieces)), count(all_given))
    yield Row("rejected by cleaning and filters", Count(skipped), count(rejected))
    yield Row("removed as copies", Count(sum(header["duplicates"].values())), count(copies))
    yield Row("kept", Count(int(np.load(out / "work" / "copies" / "kept.npy").sum())), count(kept))
    encoded = Count(sum(fact["documents"] for fact in facts("encode")), tokens_in(out, "work/encode/*/text.ids.bin"))
    yield Row("encoded", encoded, count(kept))
    train, heldout = planned(""), planned("heldout_")
    yield Row("planned", Count(*map(sum, zip(train, heldout, strict=True))), count(kept))
    for split, plan in (("train", train), ("heldout", heldout)):
        stream, stored = header["streams"][split], tokens_in(out, f"{split}/*/tokens.bin")
        what = f"{split}: {stored:,} stored + {stream['cut_tokens']:,} cut off"
        yield Row(what, Count(stream["documents"], stored + stream["cut_tokens"]), Count(*plan))


def contents(what: str, found: Counter[tuple[str, bytes]], wanted: Counter[tuple[str, bytes]]) -> Iterator[Row]:
    """Documents of each domain, told apart by a hash."""
    for domain in sorted({domain for domain, _ in wanted | found}):
        same = sum(count for key, count in (found & wanted).items() if key[0] == domain)
        stored, kept = (sum(count for key, count in all_.items() if key[0] == domain) for all_ in (found, wanted))
        yield Row(f"{what}: {domain}", Count(same), Count(max(stored, kept)))


def balance(files: Sequence[Path], folder: Path) -> Iterator[Row]:
    """Prepare ``files`` in ``folder``, where a tokenizer is, and account for all that was in them."""
    out = folder / "store"
    header = prepare(spec_from(specification(files, folder, "bfd"), "benchmark"), out, keep_work=True)
    store = Store(out)
    tokenizer = store.tokenizer()
    bare = tokenizers.Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    all_given = given(files, bare, (tokenizer.bos_id or 0, tokenizer.eos_id))
    gone = {*places(out / "rejects.jsonl", "where"), *places(out / "duplicates.jsonl", "removed")}
    kept = {where: one for where, one in all_given.items() if where not in gone}
    yield from stages(out, header, all_given, kept)
    found = Counter((domain, digest(ids.tobytes())) for split in SPLITS for domain, ids in documents(store, split))
    yield from contents("bfd, first ids", found, Counter((one.domain, one.cut) for one in kept.values()))

    prepare(spec_from(specification(files, folder, "simple"), "benchmark"), out, overwrite=True)
    store = Store(out)
    found = Counter(
        (domain, digest(tokenizer.decode(ids[1:-1].tolist()).encode("utf-8")))
        for split in SPLITS
        for domain, ids in documents(store, split)
    )
    yield from contents("simple, decoded text", found, Counter((one.domain, one.text) for one in kept.values()))


def main() -> int:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = everything(folder)
        texts = (row["text"] for file in files for _, row in read_jsonl(file))
        train_tokenizer(texts, VOCAB_SIZE, folder / "tokenizer", max_bytes=5_000_000)
        rows = list(balance(files, folder))
    print(f"{'':<60} {'by the stage':>27} {'counted here':>27}")
    for row in rows:
        print(f"{row.what:<60} {row.told.text()} {row.counted.text()} {'' if row.balances else '<- differs'}")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(not all(row.balances for row in rows))


if __name__ == "__main__":
    sys.exit(main())
