"""Shards without text: sequences of numbers in encoded pieces, planned, written and read as the pipeline does it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbed.data.layout import little
from seedbed.data.packing import pack
from seedbed.data.plan import EncodedPiece, plan_store
from seedbed.data.readers import mapped, shared
from seedbed.data.spec import Spec, spec_from
from seedbed.data.split import IGNORED, Shard, Split
from seedbed.data.steps import TABLE
from seedbed.data.write import cut_into_shards, write_shard

PAD = 0
VOCAB = 65_536


class Doc(NamedTuple):
    ids: list[int]
    trained: list[bool]
    group: int = 0
    split: int = 0
    """As in TABLE: 0 train, 1 heldout, -1 its hash decides."""
    hash: int = 0


def docs_of(lengths: Sequence[int], **fields: Any) -> list[Doc]:
    """Documents of these lengths in which every token is another number: 1, 2, 3, ..., and all are trained."""
    ids = iter(range(1, VOCAB))
    return [Doc([next(ids) for _ in range(length)], [True] * length, **fields) for length in lengths]


def spec_of(strategy: str, seq_len: int, masked: bool = False, **sections: Any) -> Spec:
    tree = {"sources": ["none"], "tokenizer": "none", "packing": {"strategy": strategy, "seq_len": seq_len}}
    if masked:
        tree["sections"] = [{"field": "prompt", "action": "mask"}, {"field": "answer"}]
    return spec_from(tree | sections, "test")


def encoded_piece(folder: Path, docs: Sequence[Doc], masked: bool, groups: Sequence[int] = (0,)) -> EncodedPiece:
    """What cleaning and encoding would have left in ``folder``; ``groups`` are the piece's among all."""
    folder.mkdir()
    rows = [(0, (doc.hash, 0), (doc.hash, 0), len(doc.ids), groups.index(doc.group), doc.split) for doc in docs]
    np.save(folder / "table.npy", np.array(rows, TABLE))
    np.save(folder / "kept.npy", np.ones(len(docs), bool))
    np.array([i for doc in docs for i in doc.ids], little("uint16")).tofile(folder / "text.ids.bin")
    if masked:
        np.array([t for doc in docs for t in doc.trained], bool).tofile(folder / "text.trained.bin")
    np.save(folder / "text.starts.npy", np.cumsum([0, *(len(doc.ids) for doc in docs)], dtype=np.int64))
    np.save(folder / "text.items.npy", np.arange(len(docs) + 1))
    return EncodedPiece(folder / "table.npy", folder, list(groups))


def packed_store(
    folder: Path, pieces: Sequence[EncodedPiece], spec: Spec, groups: Sequence[tuple[str, str]] = (("", ""),)
) -> dict[str, Any]:
    """Plan and write everything; returns the plan's counts, with the sum of what the shards count in each stream."""
    (folder / "plan").mkdir()
    facts = plan_store(folder / "plan", pieces, spec, groups)
    encoded, goes_on = [piece.encoded for piece in pieces], spec.packing.strategy in ("simple", "bfd_split")
    for stream, counts in facts["streams"].items():
        counts["shards"] = []
        ranges = cut_into_shards(folder / "plan", stream, spec.packing.seq_len, spec.storage.shard_tokens)
        for number, (low, high) in enumerate(ranges):
            shard = folder / stream / f"{number:05d}"
            shard.mkdir(parents=True)
            of = write_shard(
                shard, folder / "plan", stream, low, high, encoded, spec.storage.format, "uint16", goes_on, []
            )
            counts["shards"].append(of)
        for key in ("predicted", "bins_without_targets"):
            counts[key] = sum(shard[key] for shard in counts["shards"])
    return facts


def open_split(folder: Path, stream: str, spec: Spec, position_ids: str = "doc_reset") -> Split:
    shards = [
        Shard(place, shared(place) if spec.storage.format == "hdf5" else mapped(place, "uint16"))
        for place in sorted((folder / stream).glob("*"))
    ]
    return Split(stream, spec.packing.seq_len, PAD, VOCAB, position_ids, "", "", shards)


def slow_windows(
    docs: Sequence[Doc], strategy: Any, seq_len: int, position_ids: str, pad: int = PAD
) -> list[list[list[int]]]:
    """Split's definition, token by token: ids, targets, doc_ids and positions, each a list of rows."""
    packed = pack(np.array([len(doc.ids) for doc in docs], np.int64), strategy, seq_len)
    segments = list(zip(packed.document.tolist(), packed.begin.tolist(), packed.length.tolist(), strict=True))
    stored = {(number, begin + i) for number, begin, length in segments for i in range(length)}
    tables: list[list[list[int]]] = [[], [], [], []]
    for low, high in zip(packed.bins[:-1], packed.bins[1:], strict=True):
        row = []
        for run, (number, begin, length) in enumerate(segments[low:high]):
            doc = docs[number]
            for place in range(begin, begin + length):
                learned = (number, place + 1) in stored and doc.trained[place + 1]
                position = {"none": len(row), "doc_reset": place - begin, "continuous": place}[position_ids]
                row.append((doc.ids[place], doc.ids[place + 1] if learned else IGNORED, run, position))
        for extra in range(seq_len - len(row)):
            row.append((pad, IGNORED, -1, len(row) if position_ids == "none" else extra))
        for table, column in zip(tables, zip(*row, strict=True), strict=True):
            table.append(list(column))
    return tables
