"""From encoded documents to what stands in which bin: the split, the mixture, the packing. Arrays alone, no text."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbed.data.holdout import held_out
from seedbed.data.mixture import mix, shortfalls, unnamed
from seedbed.data.packing import pack
from seedbed.data.spec import Spec
from seedbed.errors import InputError


class EncodedPiece(NamedTuple):
    """A piece of cleaned text and what encoding made of it."""

    table: Path
    encoded: Path
    groups: list[int]
    """For each group of the file its number among all."""


class Corpus(NamedTuple):
    """All documents that were encoded, in input order, a row each."""

    piece: np.ndarray  # [n] int32
    record: np.ndarray  # [n] int32, its number among the encoded documents of its piece
    hash: np.ndarray  # [n, 2] uint64
    bytes: np.ndarray  # [n] int64
    group: np.ndarray  # [n] int32
    split: np.ndarray  # [n] int8: 0 train, 1 heldout, -1 undecided


def read_corpus(pieces: Sequence[EncodedPiece]) -> Corpus:
    columns: list[tuple[np.ndarray, ...]] = []
    for number, piece in enumerate(pieces):
        table = np.load(piece.table)[np.load(piece.encoded / "kept.npy")]
        groups = np.array(piece.groups, np.int32)[table["group"]]
        place = np.full(len(table), number, np.int32), np.arange(len(table), dtype=np.int32)
        columns.append((*place, table["hash"], table["bytes"], groups, table["split"]))
    return Corpus(*map(np.concatenate, zip(*columns, strict=True)))


class Sequences(NamedTuple):
    """The encoded sequences of one output, in input order; record i has those from first[i] to first[i + 1]."""

    piece: np.ndarray  # [s] int32
    start: np.ndarray  # [s] int64, in the tokens of the piece
    length: np.ndarray  # [s] int64
    first: np.ndarray  # [n + 1] int64


def read_sequences(pieces: Sequence[EncodedPiece], output: str) -> Sequences:
    starts = [np.load(piece.encoded / f"{output}.starts.npy") for piece in pieces]
    items = [np.diff(np.load(piece.encoded / f"{output}.items.npy")) for piece in pieces]
    return Sequences(
        np.repeat(np.arange(len(starts), dtype=np.int32), [len(start) - 1 for start in starts]),
        np.concatenate([start[:-1] for start in starts]),
        np.concatenate([np.diff(start) for start in starts]),
        np.cumsum(np.concatenate([[0], *items]), dtype=np.int64),
    )


def _tokens_of_records(outputs: Iterable[Sequences], longest: int | None = None) -> np.ndarray:
    """Tokens of each record, [n] int64; ``longest`` is what is counted of a sequence at most."""
    counts = []
    for sequences in outputs:
        length = sequences.length if longest is None else np.minimum(sequences.length, longest)
        counts.append(np.diff(np.append(0, np.cumsum(length))[sequences.first]))
    return np.sum(counts, axis=0)


def ranges(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, ... (count[0] of them), first[1], ...: [sum(count)] int64."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def plan_store(
    folder: Path, pieces: Sequence[EncodedPiece], spec: Spec, groups: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Which documents each split reads, and for each of its outputs the segments and bins: arrays in ``folder``.

    `SPLIT.records.npy` [m]: rows of the corpus in the order of the split. `SPLIT.OUTPUT.NAME.npy` [segments]: piece,
    start (in the piece's tokens), length, position (in the sequence), rest (tokens of the sequence behind it), group;
    bins [bins + 1] (first segment of each). Raises InputError where nothing is left to train on.
    """
    corpus = read_corpus(pieces)
    outputs = {output: read_sequences(pieces, output) for output in spec.texts()}
    tokens = _tokens_of_records(outputs.values())
    heldout = held_out(corpus.hash, spec.heldout, corpus.split)
    chosen = {"train": np.flatnonzero(~heldout), "heldout": np.flatnonzero(heldout)}
    shares: list[dict[str, Any]] = []
    warnings: list[str] = []
    if spec.mixture is not None:
        train, domains = chosen["train"], sorted({domain for domain, _ in groups})
        numbers = {name: number for number, name in enumerate(domains)}
        domain = np.array([numbers[domain] for domain, _ in groups])[corpus.group]
        # only what trains is weighed: these strategies cut off what is longer than a bin
        longest = spec.packing.seq_len if spec.packing.strategy in ("bfd", "none") else None
        weighed = _tokens_of_records(outputs.values(), longest)
        picked, report = mix(weighed[train], domain[train], corpus.hash[train, 0], domains, spec.mixture)
        named = np.array([name in spec.mixture.weights for name in domains])
        chosen["heldout"] = chosen["heldout"][named[domain[chosen["heldout"]]]]
        chosen["train"], shares = train[picked], [share._asdict() for share in report]
        warnings = unnamed(domains, domain, spec.mixture) + shortfalls(report, spec.mixture)
    if not len(chosen["train"]):
        why = warnings[-1] if warnings else "give more, or hold out less"
        raise InputError(f"no document is left to train on; {why}")
    streams: dict[str, Any] = {}
    for split, records in chosen.items():
        np.save(folder / f"{split}.records.npy", records)
        for output, sequences in outputs.items():
            streams[f"{split}.{output}"] = {
                "documents": len(records),
                "bytes": int(corpus.bytes[records].sum()),
                **_plan_stream(folder / f"{split}.{output}", corpus, records, sequences, spec),
            }
    counted = _count_groups(corpus, tokens, chosen, groups)
    records = {split: len(rows) for split, rows in chosen.items()}
    return {"streams": streams, "records": records, "groups": counted, "mixture": shares, "warnings": warnings}


def _plan_stream(stem: Path, corpus: Corpus, records: np.ndarray, sequences: Sequences, spec: Spec) -> dict[str, int]:
    """Pack the sequences of ``records`` [m]: arrays beside ``stem``, and what there is to count."""
    first = sequences.first[records]
    count = sequences.first[records + 1] - first
    mine = ranges(first, count)  # [items] into sequences
    lengths = sequences.length[mine]
    packed = pack(lengths, spec.packing.strategy, spec.packing.seq_len)
    at = mine[packed.document]
    columns = {
        "piece": sequences.piece[at],
        "start": sequences.start[at] + packed.begin,
        "length": packed.length,
        "position": packed.begin,
        "rest": sequences.length[at] - packed.begin - packed.length,
        "group": np.repeat(corpus.group[records], count)[packed.document],
        "bins": packed.bins,
    }
    for name, column in columns.items():
        np.save(f"{stem}.{name}.npy", column)
    tokens, bins = int(packed.length.sum()), len(packed.bins) - 1
    return {
        "bins": bins,
        "segments": len(at),
        "documents_split": int(np.count_nonzero(np.bincount(packed.document, minlength=1) > 1)),
        "tokens": tokens,
        "padding": bins * spec.packing.seq_len - tokens,
        "cut_documents": packed.cut_documents,
        "cut_tokens": packed.cut_tokens,
    }


def _count_groups(
    corpus: Corpus, tokens: np.ndarray, chosen: dict[str, np.ndarray], groups: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    """What was made of the documents of each domain and language: fields of header.Group."""
    train, heldout = chosen["train"], chosen["heldout"]
    times = np.bincount(train, minlength=len(tokens))  # [n] how often each document trains
    unread = times == 0
    unread[heldout] = False
    left_out = np.flatnonzero(unread)
    again = np.repeat(np.arange(len(times)), np.maximum(times - 1, 0))

    def count(records: np.ndarray) -> list[int]:
        return np.bincount(corpus.group[records], minlength=len(groups)).tolist()

    def total(values: np.ndarray, records: np.ndarray) -> list[int]:
        sums = np.zeros(len(groups), np.int64)
        np.add.at(sums, corpus.group[records], values[records])
        return sums.tolist()

    columns = {
        "documents": count(train),
        "tokens": total(tokens, train),
        "bytes": total(corpus.bytes, train),
        "repeated_documents": count(again),
        "repeated_tokens": total(tokens, again),
        "heldout_documents": count(heldout),
        "heldout_tokens": total(tokens, heldout),
        "left_out_documents": count(left_out),
        "left_out_tokens": total(tokens, left_out),
    }
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return [{"domain": domain, "lang": lang, **row} for (domain, lang), row in zip(groups, rows, strict=True)]
