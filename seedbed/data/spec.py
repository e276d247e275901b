"""The specification of a store: which text, how it is cleaned, cut, packed and kept, as data."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from seedbed.config.explain import explain
from seedbed.config.options import suggest
from seedbed.config.reader import parse_file, to_json
from seedbed.errors import InputError


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


class Source(Part):
    path: Text
    """A file, a folder, a pattern (`corpus/en_*.jsonl.zst`), or any fsspec address (`s3://bucket/part-*.parquet`)."""
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
    options: Annotated[dict[str, Any], Field(exclude=True, repr=False)] = {}
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
    """bin: flat files, memory-mapped. hdf5: read into shared memory. jsonl: texts, encoded when they are read."""
    shard_tokens: Annotated[int, Field(gt=0, lt=2**40)] = 100_000_000
    """Tokens of a shard, to the nearest whole bin (S1 appendix: 100M)."""
    dtype: Literal["auto", "uint16", "uint32"] = "auto"
    """Type of the stored ids. auto: the smallest that holds the vocabulary."""

    @model_validator(mode="after")
    def _is_read(self) -> Self:
        if self.format == "jsonl" and self.dtype != "auto":
            raise ValueError("dtype: jsonl stores no ids; leave it out, or store bin")
        return self


def _paths(value: Any) -> Any:
    """A path alone stands for a source with nothing else set."""
    return [{"path": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value


class Spec(Part):
    sources: Annotated[
        list[Source], BeforeValidator(_paths, json_schema_input_type=list[str | Source]), Field(min_length=1)
    ]
    """Where records come from, in the order of training documents; a path alone is enough."""
    tokenizer: Text
    """Folder of the tokenizer."""
    on_bad: Literal["strict", "skip"] = "strict"
    """A record that is none: stop, or count it and go on."""
    sections: Annotated[list[Section], Field(min_length=1)] | None = None
    """What a document is made of. Default: the text under `text`."""
    outputs: Annotated[dict[Text, Output], Field(min_length=1)] | None = None
    """Several sequences a record (chosen and rejected, prompts and rewards) instead of one; needs packing none. A
    record with a sequence longer than packing.seq_len is left out whole: a part of it would mean something else."""
    chat_template: Text | None = None
    """Jinja template for by_role: `tokenizer` (its own), `chatml`, or a file."""
    min_chars: Count = 0
    """Fields with fewer characters are left out with their record (S1 uses 50)."""
    max_chars: Count | None = None
    """Fields with more characters are left out with their record (S1 uses 2,000,000)."""
    clean: list[Literal["html", "urls", "markdown", "nfc", "nfkc", "whitespace"]] = []
    """What is done to every field, in this order."""
    filters: Filters = Filters()
    """Which documents are rejected."""
    dedup: Dedup = Dedup()
    """Which copies are dropped."""
    heldout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the documents that is held out, chosen by a hash of their text."""
    mixture: Mixture | None = None
    """Share of the domains in training. Default: all there is, once."""
    packing: Packing = Packing()
    """How documents become bins."""
    storage: Storage = Storage()
    """How bins are kept."""
    keep_rejects: bool = False
    """Keep what was left out, with the reason, in `rejects.jsonl`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sections is not None and self.outputs is not None:
            raise ValueError("sections and outputs: set one of them")
        if self.outputs is not None and self.packing.strategy != "none":
            raise ValueError(
                f"packing.strategy: {self.packing.strategy} would tear apart the outputs of a record; set none"
            )
        if not self.texts():
            raise ValueError("outputs: none of them has sections, so there is no text")
        for name in self.outputs or {}:
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or name == "records":
                raise ValueError(
                    f"outputs: {name[:80]!r} names a folder; use a letter and up to 63 more letters (lower-case), "
                    "digits and _, not records"
                )
        if self.outputs is None and not any(section.trains for section in self.texts()["text"]):
            raise ValueError("sections: nothing is trained; give one the action train, or by_role with roles")
        if self.storage.format == "jsonl" and (self.packing.strategy != "simple" or self.outputs is not None):
            raise ValueError(
                "storage.format: jsonl is encoded when it is read, but only packing.strategy simple needs no lengths "
                "beforehand; set it, or store bin"
            )
        by_role = any(section.action == "by_role" for sections in self.texts().values() for section in sections)
        if by_role and self.chat_template is None:
            raise ValueError("chat_template: by_role needs one: tokenizer, chatml, or a file")
        if self.chat_template is not None and not by_role:
            raise ValueError("chat_template: no section has the action by_role, so nothing would use it")
        if self.max_chars is not None and self.max_chars < self.min_chars:
            raise ValueError(f"max_chars: {self.max_chars} is below min_chars, {self.min_chars}")
        domains = sorted({source.domain or "" for source in self.sources})
        if self.mixture is not None and "" not in domains:  # else only the records tell
            for name in self.mixture.weights:
                if name not in domains:
                    raise ValueError(f"mixture.weights.{name}: no source has this domain; {suggest(name, domains)}")
        return self

    def texts(self) -> dict[str, list[Section]]:
        """Sections of the outputs that are token sequences, by name; "text" is the one of a spec without outputs."""
        if self.outputs is None:
            return {"text": self.sections or [Section(field="text")]}
        return {name: output.sections for name, output in self.outputs.items() if output.sections is not None}

    def numbers(self) -> dict[str, str]:
        """Field of the outputs that are numbers, by name."""
        return {name: output.numbers for name, output in (self.outputs or {}).items() if output.numbers is not None}


def load_spec(path: str | Path) -> Spec:
    """Read a specification, YAML or JSON. Raises InputError with file, path of the field, and what was meant."""
    return spec_from(read_tree(path), str(path))


def read_tree(path: str | Path) -> dict[str, Any]:
    """The plain values of a specification's file. Raises InputError."""
    tree = parse_file(path)
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a specification is a mapping (sources:, tokenizer:, packing:, ...)")
    return tree


def spec_from(tree: dict[str, Any], where: str, origin: dict[tuple[str, ...], str] | None = None) -> Spec:
    """A specification from plain values; ``where`` names the source in errors, ``origin`` the option that set a path.

    Raises InputError as load_spec does.
    """
    try:
        return Spec.model_validate_json(to_json(tree, where))
    except ValidationError as error:
        raise InputError(explain(error, where, origin or {}, Spec)) from None
