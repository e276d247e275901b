"""The specification of a store: which text, how it is cleaned, cut, packed and kept, as data."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from seedbed.config.explain import explain
from seedbed.config.options import suggest
from seedbed.config.reader import parse_file, to_json
from seedbed.data.sections import Count, Dedup, Filters, Mixture, Output, Packing, Part, Section, Source, Storage, Text
from seedbed.errors import InputError


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
    clean: list[Literal["html", "urls", "markdown", "nfc", "nfkc", "whitespace"]] = []  # noqa: RUF012
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
    """Keep what was left out, with the reason, in `rejects.jsonl`: lines {where, reason, record}."""

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
