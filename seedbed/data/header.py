"""What `header.json` of a token store may hold."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

FORMAT_VERSION = 1
DOCS_DTYPE = "<i8"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Shard(_Strict):
    """One file of a flat array."""

    name: Annotated[str, Field(pattern=r"^[a-z]+(-docs)?-[0-9]{5,}\.bin$")]
    bytes: NonNegativeInt
    sha256: Sha256


class Part(_Strict):
    """One split."""

    documents: NonNegativeInt
    tokens: NonNegativeInt
    bytes: NonNegativeInt
    bins: NonNegativeInt
    documents_split: NonNegativeInt
    padding: NonNegativeInt
    shards: Annotated[list[Shard], Field(min_length=1)]
    document_starts: Annotated[list[Shard], Field(min_length=1)]


class Splits(_Strict):
    train: Part
    heldout: Part


class Header(_Strict):
    """Types, ranges, and what the fields say about one another."""

    format_version: Literal[1]
    packing: Literal["simple"]
    seq_len: Annotated[int, Field(ge=2)]
    dtype: Literal["uint16", "uint32"]
    vocab_size: Annotated[int, Field(gt=0)]
    bos_id: NonNegativeInt
    eos_id: NonNegativeInt
    tokenizer_hash: Sha256
    heldout_fraction: Annotated[float, Field(ge=0, lt=1)]
    splits: Splits
    skipped: dict[str, int]
    repaired: dict[str, int]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if max(self.bos_id, self.eos_id) >= self.vocab_size:
            raise ValueError(f"bos_id and eos_id must be below vocab_size, {self.vocab_size}")
        if self.vocab_size - 1 > np.iinfo(self.dtype).max:
            raise ValueError(f"{self.dtype} cannot hold a vocabulary of {self.vocab_size}")
        for name, part in (("train", self.splits.train), ("heldout", self.splits.heldout)):
            self._counts_fit(name, part)
        return self

    def _counts_fit(self, name: str, part: Part) -> None:
        for files, dtype, count in (
            (part.shards, self.dtype, part.tokens),
            (part.document_starts, DOCS_DTYPE, part.documents),
        ):
            size = np.dtype(dtype).itemsize
            if any(file.bytes % size for file in files) or sum(file.bytes for file in files) != count * size:
                raise ValueError(f"counts and shards of {name!r} disagree")
        if part.bins * self.seq_len - part.tokens != part.padding or part.padding >= self.seq_len:
            raise ValueError(f"bins, tokens and padding of {name!r} disagree")
