"""The sections of a specification: each says one thing about a store."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character, which no path and no key has")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_without_nul)]
Count = Annotated[int, Field(ge=0, lt=2**40)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Share = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


# user:password@ in front of a host; github://owner:repository@branch and git://path:branch@ hold none
_PASSWORD = re.compile(r"(?<!github)(?<!\bgit)://[^/?#]*:[^/?#]*@")


def _without_password(address: str) -> str:
    if _PASSWORD.search(address):
        raise ValueError(
            "holds a password, and the store keeps addresses; give user and password in the source's options "
            "({username: ..., password: ...}), which it does not keep, or in fsspec's configuration"
        )
    return address


def _mapping(options: Any) -> Any:
    """Refuses what is none without a look at it: it may be a secret."""
    if not isinstance(options, dict):
        raise ValueError(f"a mapping is needed ({{anon: true}}), not {'null' if options is None else 'a value'}")
    return options


class Source(Part):
    path: Annotated[Text, AfterValidator(_without_password)]
    """A file, a folder, a pattern (`corpus/en_*.jsonl.zst`), or any fsspec address (`s3://bucket/part-*.parquet`).
    It is kept in the store: one that holds a password is refused."""
    format: Literal["auto", "jsonl", "parquet", "text", "dataset"] = "auto"
    """auto: by name. text: each file of a folder is a document. dataset: what `Dataset.save_to_disk` wrote."""
    domain: Text | None = None
    """Domain of all its documents. Default: each record's own (domain_field), else the file's name."""
    domain_field: Text | None = None
    """Key of a record's domain, which then each must have. Default: `domain`, where a record has it."""
    lang_field: Text | None = None
    """Key of a record's language, which then each must have. Default: `lang`, where a record has it."""
    id_field: Text | None = None
    """Key of a record's name, a string or a number, which then each must have. Default: `id`, where a record has it,
    else its file and line."""
    split_field: Text | None = None
    """Key of a record's split, which then each must have: `train`, `heldout`, or null where the text decides (see
    heldout). Default: the text decides."""
    options: Annotated[dict[str, Any], BeforeValidator(_mapping), Field(exclude=True, repr=False)] = {}
    """What the file system needs, passed to fsspec (`{anon: true}`). It may be secret, and is not kept in the store."""

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if self.domain is not None and self.domain_field is not None:
            raise ValueError("domain and domain_field: set one of them")
        if self.options and "://" not in self.path:
            raise ValueError("options: a path of this machine needs none; they are for addresses (s3://...)")
        return self


class Section(Part):
    field: Text
    """Key of the text; under by_role of a list of messages (role, content), or of the first user's message."""
    action: Literal["train", "mask", "by_role"] = "train"
    """train: its tokens are predicted. mask: they are read only. by_role: a conversation, rendered by chat_template, in
    which what the trained roles say is predicted."""
    roles: list[Text] = ["assistant"]
    """Roles that by_role trains; none: the conversation is only read."""
    answer: Text | None = None
    """Key of a reply (text, one message or several) that by_role appends to the conversation; then only the reply is
    trained."""
    tools: Text | None = None
    """Key of tool definitions (a list, or its JSON text; null where there are none) that the chat template reads."""

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if self.action != "by_role" and (self.roles, self.answer, self.tools) != (["assistant"], None, None):
            raise ValueError(f"roles, answer, tools: {self.action} reads none of them; set action by_role")
        return self

    @property
    def trains(self) -> bool:
        """Whether anything in it can be predicted."""
        return self.action == "train" or (self.action == "by_role" and bool(self.roles))


class Output(Part):
    sections: Annotated[list[Section], Field(min_length=1)] | None = None
    """What a sequence is made of, in order."""
    each: bool = False
    """The field of its one section holds a list, or its answer where it has one; each item makes a sequence."""
    numbers: Text | None = None
    """Instead of sections: key of a number or of a list of numbers, such as rewards; true is 1, false 0."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.sections is None) == (self.numbers is None):
            raise ValueError("set sections, or numbers")
        if self.each and len(self.sections or []) != 1:
            raise ValueError("each: the items of a list make the sequences of exactly one section")
        return self


class RepetitionFilter(Part):
    n: Annotated[int, Field(ge=1, le=100)]
    """Length of the n-grams."""
    max_share: Share
    """A document is rejected when more than this share of it lies in n-grams that occurred before."""


class LanguageFilter(Part):
    scripts: Annotated[list[Literal["latin", "han"]], Field(min_length=1)]
    """Scripts that are wanted, together."""
    min_share: Share
    """Least share of the letters in these scripts; a text without letters has none."""


class QualityFilter(Part):
    max_symbol_share: Share | None = None
    """Largest share of punctuation and symbols among the characters that are no space."""
    max_digit_share: Share | None = None
    """Largest share of digits among the characters that are no space."""
    min_mean_word: Annotated[float, Field(ge=0)] | None = None
    """Least mean length of words in characters; not asked of texts that are mostly Han."""
    max_mean_word: Annotated[float, Field(gt=0)] | None = None
    """Largest mean length of words; not asked of texts that are mostly Han."""
    min_ended_share: Share | None = None
    """Least share of the lines with text that end a sentence (`. ! ? … 。 ！ ？`, also in quotation marks)."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self == type(self).model_construct():
            raise ValueError("no limit is set, so that it rejects nothing; set one, or leave quality out")
        if (
            self.min_mean_word is not None
            and self.max_mean_word is not None
            and self.max_mean_word < self.min_mean_word
        ):
            raise ValueError(f"max_mean_word: {self.max_mean_word:g} is below min_mean_word, {self.min_mean_word:g}")
        return self


class Filters(Part):
    char_repetition: RepetitionFilter | None = None
    """Repeated n-grams of characters: spam, padding, the same line again and again."""
    word_repetition: RepetitionFilter | None = None
    """Repeated n-grams of words; each Han character counts as a word, punctuation does not count."""
    language: LanguageFilter | None = None
    """Share of scripts."""
    quality: QualityFilter | None = None
    """Simple measures of prose."""
    datatrove: dict[Text, dict[str, Any]] = {}
    """Filters of datatrove by class name, with their arguments: `{C4QualityFilter: {language: zho}}`. They reject
    documents; lines that some of them would take out stay."""


class NearDuplicates(Part):
    threshold: Annotated[float, Field(ge=0.3, le=1)] = 0.7
    """Exact Jaccard similarity of character n-grams from which the later document is dropped (S1 2.3)."""
    ngram: Annotated[int, Field(ge=1, le=3)] = 3
    """Characters of an n-gram."""
    permutations: Annotated[int, Field(ge=16, le=1024)] = 128
    """Hashes of a MinHash signature."""
    bands: Annotated[int, Field(ge=1, le=256)] = 25
    """Bands of the search for candidates."""
    rows: Annotated[int, Field(ge=1, le=64)] = 5
    """Hashes of a band: documents that agree on all of one band are compared."""

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.permutations:
            raise ValueError(f"bands * rows is {self.bands * self.rows}, more than permutations, {self.permutations}")
        return self


class Dedup(Part):
    exact: bool = False
    """Drop a document that trains what an earlier one does: the same text, masks, roles, tools and numbers."""
    near: NearDuplicates | None = None
    """Drop a document whose text is nearly that of an earlier, kept one, whatever its masks, roles and numbers."""
    alarm: Share = 0.5
    """Warn when a source loses more than this share of its documents."""

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if not self.exact and self.near is None and self.alarm != type(self).model_fields["alarm"].default:
            raise ValueError("alarm: nothing looks for copies; set exact or near too")
        return self


class Mixture(Part):
    weights: Annotated[dict[Text, Annotated[float, Field(ge=0, le=1e9)]], Field(min_length=1)]
    """Share of the training tokens by domain. One that is not named is left out; one of weight 0 is only held out."""
    tokens: Annotated[int, Field(gt=0, lt=2**53)] | None = None
    """Training tokens wanted. Default: as many as no domain has to be read more than max_epochs times for."""
    max_epochs: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How often a document may be trained on in one epoch of the store, at most."""

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if sum(self.weights.values()) <= 0:
            raise ValueError("weights sum to 0; give one domain a weight above it")
        return self


class Packing(Part):
    strategy: Literal["simple", "bfd", "bfd_split", "none"] = "simple"
    """simple: documents one after another, cut where a bin is full. bfd: best fit decreasing, longer documents are cut
    off. bfd_split: best fit decreasing, longer documents go on in further bins. none: one sequence a bin, cut off."""
    seq_len: Annotated[int, Field(ge=2, lt=2**31)] = 256
    """Tokens of a bin."""
    position_ids: Literal["none", "doc_reset", "continuous"] = "doc_reset"
    """none: a token's place in its bin. doc_reset: its place in the document's piece in the bin. continuous: its place
    in the document, counted on in further bins."""


class Storage(Part):
    format: Literal["bin", "hdf5", "jsonl"] = "bin"
    """bin: flat files, memory-mapped. hdf5: what other programs read, mapped too. jsonl: texts, encoded when read."""
    shard_tokens: Annotated[int, Field(gt=0, lt=2**40)] = 100_000_000
    """Tokens of a shard, to the nearest whole bin (S1 appendix: 100M)."""
    dtype: Literal["auto", "uint16", "uint32"] = "auto"
    """Type of the stored ids. auto: the smallest that holds the vocabulary."""

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if self.format == "jsonl" and self.dtype != "auto":
            raise ValueError("dtype: jsonl stores no ids; leave it out, or store bin")
        return self
