"""What `header.json` of a token store may hold."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

FORMAT_VERSION = 2

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
StreamName = Annotated[str, Field(pattern=r"^(train|heldout)(/[a-z][a-z0-9_]*)?$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Shard(_Strict):
    """One folder of a stream."""

    name: Annotated[str, Field(pattern=r"^[0-9]{5,}$")]
    bins: NonNegativeInt
    segments: NonNegativeInt
    tokens: NonNegativeInt
    sha256: Sha256
    """Of its commit.json, which has the hashes of its files."""


class Stream(_Strict):
    """Bins of one split; of one output of it, where a record has several."""

    documents: NonNegativeInt
    """Documents in it; one that the mixture reads twice counts twice."""
    bytes: NonNegativeInt
    """UTF-8 length of their texts."""
    bins: NonNegativeInt
    segments: NonNegativeInt
    documents_split: NonNegativeInt
    """Documents that go on in another bin."""
    tokens: NonNegativeInt
    predicted: NonNegativeInt
    """Tokens that are a target: not a document's first, not masked, not cut off."""
    bins_without_targets: NonNegativeInt
    """Bins that teach nothing: all that stands there is masked, or an answer was cut off."""
    padding: NonNegativeInt
    """Places of the bins that no token fills."""
    cut_documents: NonNegativeInt
    cut_tokens: NonNegativeInt
    """Tokens that were cut off, in all."""
    shards: list[Shard]


class Group(_Strict):
    """Documents of one domain and language that were encoded; tokens with those that were cut off."""

    domain: str
    lang: str
    documents: NonNegativeInt
    """In the training split, as often as the mixture reads them."""
    tokens: NonNegativeInt
    bytes: NonNegativeInt
    repeated_documents: NonNegativeInt
    """Of those in the training split, the ones that were there before."""
    repeated_tokens: NonNegativeInt
    heldout_documents: NonNegativeInt
    heldout_tokens: NonNegativeInt
    left_out_documents: NonNegativeInt
    """In neither split: the mixture does not name their domain, or has its share of it without them."""
    left_out_tokens: NonNegativeInt


class Header(_Strict):
    """Types, ranges, and what the fields say about one another."""

    format_version: Literal[2]
    packing: Literal["simple", "bfd", "bfd_split", "none"]
    seq_len: Annotated[int, Field(ge=2)]
    position_ids: Literal["none", "doc_reset", "continuous"]
    storage: Literal["bin", "hdf5", "jsonl"]
    dtype: Literal["uint16", "uint32"]
    vocab_size: Annotated[int, Field(gt=0)]
    padded_vocab_size: Annotated[int, Field(gt=0)]
    bos_id: NonNegativeInt | None
    eos_id: NonNegativeInt
    tokenizer_hash: Sha256
    lossless: bool
    libraries: dict[str, str]
    """Versions of the libraries that decided what the store holds."""
    spec: dict[str, Any]
    spec_hash: Sha256
    records: dict[Literal["train", "heldout"], NonNegativeInt]
    streams: dict[StreamName, Stream]
    numbers: list[str]
    groups: list[Group]
    mixture: list[dict[str, Any]]
    skipped: dict[str, int]
    repaired: dict[str, int]
    duplicates: dict[str, int]
    warnings: list[str]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if max(self.bos_id or 0, self.eos_id) >= self.vocab_size:
            raise ValueError(f"bos_id and eos_id must be below vocab_size, {self.vocab_size}")
        if self.padded_vocab_size < self.vocab_size:
            raise ValueError(f"padded_vocab_size is below vocab_size, {self.vocab_size}")
        if self.vocab_size - 1 > np.iinfo(self.dtype).max:
            raise ValueError(f"{self.dtype} cannot hold a vocabulary of {self.vocab_size}")
        train, heldout = (self._outputs(split) for split in ("train", "heldout"))
        if (
            not train
            or train != heldout
            or ("" in train and len(train) > 1)
            or set(self.records) != {"train", "heldout"}
        ):
            raise ValueError("streams and records must be those of train and heldout, of the same outputs")
        for name, stream in self.streams.items():
            if [shard.name for shard in stream.shards] != [f"{number:05d}" for number in range(len(stream.shards))]:
                raise ValueError(f"shards of {name!r} are not numbered from 0")
            for count in ("bins", "segments", "tokens"):
                if sum(getattr(shard, count) for shard in stream.shards) != getattr(stream, count):
                    raise ValueError(f"{count} and shards of {name!r} disagree")
            if stream.bins * self.seq_len - stream.tokens != stream.padding or stream.padding < 0:
                raise ValueError(f"bins, tokens and padding of {name!r} disagree")
            if stream.predicted > stream.tokens or stream.bins_without_targets > stream.bins:
                raise ValueError(f"predicted, tokens and bins of {name!r} disagree")
        return self

    def _outputs(self, split: str) -> set[str]:
        """Names of the outputs that the split has; an empty one where a record is one sequence."""
        return {name.partition("/")[2] for name in self.streams if name.partition("/")[0] == split}
