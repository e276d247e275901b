"""A token store opened for reading: a folder that `prepare` made, whole or not at all.

header.json                      what is in it (see header.py); `format_version` 2
train/00000/, heldout/00000/ ... its shards (see layout.py); train/OUTPUT/00000/ where a record has several outputs
train/records/                   then also: where each record's sequences and numbers begin
tokenizer/                       a copy of the tokenizer; chat_template.jinja where one was used
request.json                     what was asked for: the specification and what it was read from
duplicates.jsonl, rejects.jsonl  what was left out, with the reason
commit.json                      sizes and hashes of all of these, written last
"""

import hashlib
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from seedbed.data.document import Encoded, SplitName
from seedbed.data.encode import Encoder
from seedbed.data.header import FORMAT_VERSION, Header
from seedbed.data.layout import AGAIN, PLACE, read_array
from seedbed.data.readers import LazyTokens, Remembered, Tokens, mapped, shared
from seedbed.data.split import Shard, Split
from seedbed.data.stages import FACTS, key_of
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage, listed

SPLITS: tuple[SplitName, ...] = ("train", "heldout")
_PAYLOAD = ("tokens.bin", "trained.bin", "tokens.h5", "documents.jsonl", "duplicates.jsonl", "rejects.jsonl")


class _Values(NamedTuple):
    """One output of the records of a split."""

    first: np.ndarray  # [records + 1] int64, where each record's sequences or numbers begin
    numbers: np.ndarray | None  # [n] float64; None where the output is sequences


class Store:
    """Checked are the sizes of all files and the content of all but those with tokens and texts, which
    `seedbed data inspect` compares with their hashes.

    Raises InputError when there is no store, when its version is unknown, or when something in it is missing, changed
    or contradicts itself.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        file = self.path / "header.json"
        if not file.is_file():
            unfinished = (self.path / "request.json").is_file()
            problem = (
                "a store that was not finished; run the same `seedbed data prepare` again"
                if unfinished
                else ("no token store there; make one with `seedbed data prepare`")
            )
            raise InputError(f"{self.path}: {problem}")
        self.header: dict[str, Any] = _read_header(file)
        if damage := folder_damage(self.path, hashed=lambda name: not name.endswith(_PAYLOAD)):
            raise InputError(f"{self.path}: damaged: {damage}; {AGAIN}")
        self._hashes = {name: digest for name, (_, digest) in listed(self.path).items()}
        _allow_open_files(4 * sum(len(stream["shards"]) for stream in self.header["streams"].values()), self.path)
        self._opener = self._reader()
        self.streams = {name: self._open(name) for name in self.header["streams"]}
        self._records = {} if "train" in self.streams else {split: self._open_records(split) for split in SPLITS}

    def _reader(self) -> Callable[[Path], Tokens]:
        """How the tokens of a shard are opened."""
        if self.header["storage"] == "hdf5":
            return shared
        if self.header["storage"] == "bin":
            return lambda folder: mapped(folder, self.header["dtype"])
        template = self.path / "chat_template.jinja"
        encoder = Encoder(self.tokenizer(), template.read_text(encoding="utf-8") if template.is_file() else None)
        remembered = Remembered()
        return lambda folder: LazyTokens(folder, encoder, remembered)

    def _open(self, name: str) -> Split:
        header = self.header
        shards: list[Shard] = []
        files: list[dict[str, str]] = []  # of each shard: name -> SHA-256
        for listing in header["streams"][name]["shards"]:
            folder = self.path / name / listing["name"]
            if self._hashes.get(f"{name}/{listing['name']}/{COMMIT}") != listing["sha256"]:
                raise InputError(f"{folder}: not the shard that header.json lists; {AGAIN}")
            shards.append(Shard(folder, self._opener(folder)))
            if shards[-1].counts() != (listing["bins"], listing["segments"], listing["tokens"]):
                raise InputError(f"{folder}: header.json counts other bins, segments or tokens; {AGAIN}")
            files.append({file: digest for file, (_, digest) in listed(folder).items() if file != FACTS})
        # what decides a batch; where a template is, storage jsonl encodes by it
        decides = [header[key] for key in ("seq_len", "eos_id", "position_ids", "tokenizer_hash")]
        template = self._hashes.get("chat_template.jinja")
        return Split(
            name,
            header["seq_len"],
            header["eos_id"],
            header["vocab_size"],
            header["position_ids"],
            key_of("stream", *decides, template, files),
            _format_1_fingerprint(header, files),
            shards,
        )

    def split(self, name: SplitName) -> Split:
        """The split "train" or "heldout". Raises InputError for a store of several outputs, which has records."""
        if name not in self.streams:
            outputs = ", ".join(stream.partition("/")[2] for stream in self.streams if stream.startswith("train/"))
            raise InputError(f"{self.path}: its records have several outputs ({outputs}); training reads only one")
        return self.streams[name]

    def _open_records(self, split: SplitName) -> dict[str, "_Values"]:
        outputs = [name.partition("/")[2] for name in self.streams if name.startswith(f"{split}/")]
        folder = self.path / split / "records"
        return {
            name: _Values(
                read_array(folder / f"{name}.items.bin", PLACE),
                read_array(folder / f"{name}.values.bin", np.dtype("<f8")) if name in self.header["numbers"] else None,
            )
            for name in [*outputs, *self.header["numbers"]]
        }

    def record(self, split: SplitName, index: int) -> dict[str, list[Encoded] | list[float]]:
        """Record ``index`` of a store of several outputs: for each its sequences, or its numbers.

        Raises IndexError for a number out of range.
        """
        if not 0 <= index < self.header["records"][split]:
            raise IndexError(f"record {index} of {self.header['records'][split]}")
        found: dict[str, list[Encoded] | list[float]] = {}
        for name, (_, values) in self._records[split].items():
            items = self.items(split, name, index)
            if values is None:
                found[name] = [self.streams[f"{split}/{name}"].tokens(item) for item in items]
            else:
                found[name] = values[items.start : items.stop].tolist()
        return found

    def items(self, split: SplitName, name: str, index: int) -> range:
        """Which bins of the stream `SPLIT/NAME`, or which of the numbers, are those of record ``index``."""
        first = self._records[split][name].first
        return range(int(first[index]), int(first[index + 1]))

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


def _allow_open_files(more: int, store: Path) -> None:
    """Raise this process's limit so that it can open that many: a mapped file stays open. Raises InputError where the
    system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/dev/fd")) + more + 100  # for sockets, checkpoints and the libraries
    if resource.RLIM_INFINITY != hard < needed:
        raise InputError(
            f"{store}: its shards need {more:,} open files, the system allows {hard:,}; raise that (ulimit -Hn) or "
            "make the store again with larger storage.shard_tokens"
        )
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _format_1_fingerprint(header: dict[str, Any], files: list[dict[str, str]]) -> str:
    """What format 1 made of a stream's tokens, which it packed and trained in one way; empty for any other way."""
    if (header["packing"], header["position_ids"]) != ("simple", "doc_reset"):
        return ""
    if not all("tokens.bin" in shard and "trained.bin" not in shard for shard in files):
        return ""
    return hashlib.sha256("".join(shard["tokens.bin"] for shard in files).encode()).hexdigest()


def _read_header(file: Path) -> dict[str, Any]:
    """The header as JSON values, checked against its model."""
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{file}: damaged; {AGAIN}") from None
    if version != FORMAT_VERSION:
        raise InputError(f"{file}: store format {version}, this release reads {FORMAT_VERSION}; {AGAIN}")
    try:
        Header.model_validate(header)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{file}: {place}{': ' if place else ''}{first['msg'].removeprefix('Value error, ')}; {AGAIN}"
        ) from None
    return header
