"""A small corpus with everything in it that a store leaves out, and what a prepared store consists of."""

import json
import random
from pathlib import Path
from typing import Any

from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from

FILES = (1, 2, 10)  # in their natural order, which is not that of their names


def write_corpus(folder: Path, documents: int = 12) -> None:
    """`part-N.jsonl`: texts, an exact copy and a near copy of the file before, spam, an empty text."""
    folder.mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(500)]
    last: dict[str, str] = {}
    for number in FILES:
        texts = [" ".join(rng.choices(words, k=rng.randint(20, 70))) for _ in range(documents)]
        records = [{"prompt": f"{number} {i}?", "text": text} for i, text in enumerate(texts)]
        copied = records[0] if number == FILES[0] else last
        near = copied | {"text": copied["text"].replace(" ", ". ", 1)}
        records[3:3] = [copied, near, {"prompt": "spam?", "text": "ha " * 100}, {"prompt": " ", "text": " "}]
        last = records[0]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"part-{number}.jsonl").write_text(lines, encoding="utf-8")


def spec_of(corpus: Path, tokenizer: Path, **changes: Any) -> dict[str, Any]:
    """A specification that uses every stage; ``changes`` replace sections of it."""
    return {
        # each a source of its own, so that each makes a unit: small files of one source share it
        "sources": [{"path": str(corpus / f"part-{number}.jsonl")} for number in FILES],
        "tokenizer": str(tokenizer),
        "sections": [{"field": "prompt", "action": "mask"}, {"field": "text"}],
        "filters": {"char_repetition": {"n": 10, "max_share": 0.5}},
        "dedup": {"exact": True, "near": {}},
        "packing": {"strategy": "bfd_split", "seq_len": 32},
        "storage": {"shard_tokens": 1500},
        "heldout": 0.2,
        "keep_rejects": True,
    } | changes


def make(spec: dict[str, Any], out: Path, workers: int = 1, **options: Any) -> dict[str, Any]:
    return prepare(spec_from(spec, "test"), out, workers=workers, **options)


def content(store: Path) -> dict[str, bytes]:
    """Every file of a store but the lock, which names a process, and the stages' files."""
    files = {path.relative_to(store): path for path in store.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if name.parts[0] not in (".lock", "work")}


def without_keys(store: Path) -> dict[str, bytes | str]:
    """What a store consists of but the keys of its units and the hashes of these."""
    files: dict[str, bytes | str] = {**content(store)}
    header = json.loads(files["header.json"])
    for stream in header["streams"].values():
        for shard in stream["shards"]:
            del shard["sha256"]
    files["header.json"] = json.dumps(header)
    return {name: raw for name, raw in files.items() if not name.endswith(("unit.json", "commit.json"))}


def units(store: Path) -> dict[str, int]:
    """When each finished unit was written, by its folder; those of a store without `work` are its shards."""
    return {
        str(file.parent.relative_to(store)): file.stat().st_mtime_ns + file.stat().st_ino
        for file in store.rglob("unit.json")
        if not any(part.startswith(".partial-") for part in file.parts)
    }


def redone(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Units of ``after`` that are not the same files as before."""
    return {name for name, written in after.items() if before.get(name) != written}
