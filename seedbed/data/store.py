"""The token store: documents encoded once, in a folder that appears whole or not at all, read by memory map.

header.json                 what is in it; `format_version` 1
train-00000.bin, ...        the flat token stream of a split, little-endian, uint16 or uint32
train-docs-00000.bin        first token of each document in that stream, int64
heldout-...                 the same for the held-out split
tokenizer/                  a copy of the tokenizer
commit.json                 sizes and hashes of all of these, written last
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from seedbed.data.header import DOCS_DTYPE, FORMAT_VERSION, Header
from seedbed.data.holdout import assign_splits
from seedbed.data.progress import spinner
from seedbed.data.shards import ShardReader, ShardWriter
from seedbed.data.sources import Document, SplitName
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, folder_damage, require_replaceable
from seedbed.files.jsonl import ReadCounts

if TYPE_CHECKING:
    from seedbed.data.split import Split

SPLITS: tuple[SplitName, ...] = ("train", "heldout")
SHARD_TOKENS = 100_000_000  # S1 appendix: raw binary shards are split at 100M tokens
_BATCH_BYTES = 1 << 20  # text a batch; the library keeps about 100 bytes a token while it encodes
_BATCH_DOCUMENTS = 4096
_TOKENS = re.compile(r"(train|heldout)-[0-9]+\.bin")


class _SplitWriter:
    """Streams one split to disk and counts it."""

    def __init__(self, folder: Path, name: SplitName, dtype: str, shard_tokens: int, stack: ExitStack):
        self.tokens = stack.enter_context(ShardWriter(folder, name, dtype, shard_tokens))
        self.starts = stack.enter_context(ShardWriter(folder, f"{name}-docs", DOCS_DTYPE, 2**62))
        self.raw_bytes = 0
        self.documents_split = 0

    def append(self, stream: np.ndarray, lengths: np.ndarray, raw_bytes: int, seq_len: int) -> None:
        """``stream`` [tokens]: whole documents, ``lengths`` [documents] tokens each."""
        ends = self.tokens.length + np.cumsum(lengths)
        starts = ends - lengths
        self.documents_split += int(np.count_nonzero(starts // seq_len != (ends - 1) // seq_len))
        self.tokens.append(stream)
        self.starts.append(starts)
        self.raw_bytes += raw_bytes

    def header(self, seq_len: int) -> dict[str, Any]:
        bins = -(-self.tokens.length // seq_len)
        return {
            "documents": self.starts.length,
            "tokens": self.tokens.length,
            "bytes": self.raw_bytes,
            "bins": bins,
            "documents_split": self.documents_split,
            "padding": bins * seq_len - self.tokens.length,
            "shards": self.tokens.listing,
            "document_starts": self.starts.listing,
        }


def prepare(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    out: str | Path,
    seq_len: int,
    heldout_fraction: float = 0.05,
    *,
    shard_tokens: int = SHARD_TOKENS,
    counts: ReadCounts | None = None,
) -> dict[str, Any]:
    """Encode ``documents`` into a new store at ``out`` and return its header.

    A document goes to its own split where it has one, else by its text to "heldout" with share ``heldout_fraction``
    (see assign_splits), and is stored as bos, tokens, eos. A store that is already there is replaced. Memory holds a
    few megabytes of text at a time.
    ``counts`` is what the source skipped and mended while it was read; it is kept in the header. Raises InputError
    when no document trains, when an argument is out of range, when an id does not fit the vocabulary, or when ``out``
    holds anything but a store.
    """
    if seq_len < 2:
        raise InputError(f"seq_len={seq_len}: must be at least 2; a window of one token gives nothing to predict from")
    if shard_tokens < 1:
        raise InputError(f"shard_tokens={shard_tokens}: must be at least 1")
    if not 0 <= heldout_fraction < 1:
        raise InputError(f"held-out fraction {heldout_fraction}: must be at least 0 and below 1")
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "uint32"
    require_replaceable(out, "header.json")
    counts = ReadCounts() if counts is None else counts
    assigned = assign_splits(documents, heldout_fraction)
    with atomic_folder(out) as folder:
        with ExitStack() as stack:
            writers: dict[SplitName, _SplitWriter] = {}
            for name in SPLITS:
                writers[name] = _SplitWriter(folder, name, _little(dtype), shard_tokens, stack)
            show = stack.enter_context(spinner("encoding:"))
            for batch, encoded in _encode_ahead(_batches(assigned), tokenizer):
                _write_batch(batch, encoded, tokenizer, writers, seq_len)
                tokens = sum(writer.tokens.length for writer in writers.values())
                show(f"{sum(writer.starts.length for writer in writers.values()):,} documents, {tokens:,} tokens")
        if not writers["train"].starts.length:
            raise InputError(f"{out}: not written: no document is left to train on; give more, or hold out less")
        header = {
            "format_version": FORMAT_VERSION,
            "packing": "simple",
            "seq_len": seq_len,
            "dtype": dtype,
            "vocab_size": tokenizer.vocab_size,
            "bos_id": tokenizer.bos_id,
            "eos_id": tokenizer.eos_id,
            "tokenizer_hash": tokenizer.hash,
            "heldout_fraction": heldout_fraction,
            "splits": {name: writer.header(seq_len) for name, writer in writers.items()},
            "skipped": dict(counts.skipped),
            "repaired": dict(counts.repaired),
        }
        tokenizer.save(folder / "tokenizer")
        (folder / "header.json").write_text(json.dumps(header, indent=1), encoding="utf-8")
    return header


_Batch = list[tuple[SplitName, Document]]


def _batches(assigned: Iterable[tuple[SplitName, Document]]) -> Iterator[_Batch]:
    batch: _Batch = []
    size = 0
    for item in assigned:
        batch.append(item)
        size += len(item[1].text)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encode_ahead(batches: Iterable[_Batch], tokenizer: Tokenizer) -> Iterator[tuple[_Batch, list[list[int]]]]:
    """Encode in a thread (the library works outside the interpreter's lock) while others are read and written."""
    with ThreadPoolExecutor(1) as pool:
        previous = None
        for batch in batches:
            future = pool.submit(tokenizer.encode_batch, [document.text for _, document in batch])
            if previous is not None:
                yield previous[0], previous[1].result()
            previous = batch, future
        if previous is not None:
            yield previous[0], previous[1].result()


def _write_batch(
    batch: _Batch, encoded: list[list[int]], tokenizer: Tokenizer, writers: dict[SplitName, _SplitWriter], seq_len: int
) -> None:
    bos, eos = [tokenizer.bos_id], [tokenizer.eos_id]
    for name, writer in writers.items():
        mine = [i for i, (side, _) in enumerate(batch) if side == name]
        if not mine:
            continue
        lengths = np.array([len(encoded[i]) + 2 for i in mine], dtype=np.int64)
        pieces = chain.from_iterable((bos, encoded[i], eos) for i in mine)
        stream = np.fromiter(chain.from_iterable(pieces), dtype=np.uint32, count=int(lengths.sum()))
        if int(stream.max()) >= tokenizer.vocab_size:
            raise InputError(f"the tokenizer gives id {stream.max()}, but its vocabulary has {tokenizer.vocab_size}")
        raw_bytes = sum(len(batch[i][1].text.encode("utf-8")) for i in mine)
        writer.append(stream, lengths, raw_bytes, seq_len)


def _little(dtype: str) -> str:
    return np.dtype(dtype).newbyteorder("<").str


class Store:
    """A token store opened for reading.

    Checked are the sizes of all its files and the content of all but the token shards, which `seedbed data inspect`
    compares with their hashes. Raises InputError when there is no store, when its version is unknown, or when
    something in it is missing, changed or contradicts itself.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        file = self.path / "header.json"
        if not file.is_file():
            raise InputError(f"{self.path}: no token store there; make one with `seedbed data prepare`")
        if damage := folder_damage(self.path, hashed=lambda name: not _TOKENS.fullmatch(name)):
            raise InputError(f"{self.path}: damaged: {damage}; make the store again with `seedbed data prepare`")
        self.header: dict[str, Any] = _read_header(file)
        self._splits = {name: self._open(name) for name in SPLITS}

    def _open(self, name: SplitName) -> "Split":
        from seedbed.data.split import Split  # here: it needs torch, preparing data does not

        header, part = self.header, self.header["splits"][name]
        tokens = ShardReader(self.path, part["shards"], _little(header["dtype"]), header["vocab_size"])
        starts = ShardReader(self.path, part["document_starts"], DOCS_DTYPE, part["tokens"])
        fingerprint = hashlib.sha256("".join(shard["sha256"] for shard in part["shards"]).encode()).hexdigest()
        return Split(name, header["seq_len"], header["eos_id"], fingerprint, tokens, starts.read(0, len(starts)))

    def split(self, name: SplitName) -> "Split":
        """The split "train" or "heldout"."""
        return self._splits[name]

    def tokenizer(self) -> Tokenizer:
        """The store's own copy of the tokenizer it was made with."""
        tokenizer = load_tokenizer(self.path / "tokenizer")
        self.check_tokenizer(tokenizer.hash)
        return tokenizer

    def check_tokenizer(self, tokenizer_hash: str) -> None:
        """Raise InputError unless the store was encoded by the tokenizer with this hash."""
        if tokenizer_hash != self.header["tokenizer_hash"]:
            raise InputError(
                f"{self.path}: encoded by tokenizer {self.header['tokenizer_hash'][:12]}, not {tokenizer_hash[:12]}; "
                "prepare the data with this tokenizer"
            )


def _read_header(file: Path) -> dict[str, Any]:
    """The header as JSON values, checked against its model."""
    again = "make the store again with `seedbed data prepare`"
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{file}: damaged; {again}") from None
    if version != FORMAT_VERSION:
        raise InputError(f"{file}: store format {version}, this release reads {FORMAT_VERSION}; {again}")
    try:
        Header.model_validate(header)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{file}: {place}{': ' if place else ''}{first['msg'].removeprefix('Value error, ')}; {again}"
        ) from None
    return header
