"""Records become documents: the fields that the specification names, checked, mended and cleaned."""

import json
import re
from collections.abc import Iterator
from typing import Any

from seedbed.data.cleaning import clean_text
from seedbed.data.document import Conversation, Document, Piece, Sequence
from seedbed.data.fields import BadRecord, LeftOut, field_of, keys_of, kind, name_of, number, split_of, wrong_type
from seedbed.data.formats import read_records
from seedbed.data.inputs import InputFile, default_domain
from seedbed.data.sections import Section
from seedbed.data.spec import Spec
from seedbed.errors import InputError
from seedbed.files.jsonl import OR_SKIP, ReadCounts

_SURROGATE = re.compile("[\ud800-\udfff]")


def documents(file: InputFile, spec: Spec, counts: ReadCounts) -> Iterator[Document]:
    """Documents of a file, in its order; what is left out or mended is counted in ``counts``.

    A record without a needed field, or with another type in one, raises InputError with file, line and field under
    `on_bad: strict` and is counted under `skip`. Lone surrogates, which UTF-8 cannot hold, become U+FFFD.
    """
    reader = Reader(spec, file, counts)
    needed = () if counts.keep else reader.needed  # a record that is kept is kept whole
    for where, record in read_records(file, spec.on_bad, counts, needed, reader.others):
        try:
            document = reader.document(where, record)
        except LeftOut as left_out:
            counts.skip(str(left_out), where, record)
        except BadRecord as bad:
            reason, problem = bad.args
            if spec.on_bad == "strict":
                raise InputError(f"{where}: {problem}{OR_SKIP}") from None
            counts.skip(reason, where, record)
        else:
            yield document


class Reader:
    """Makes documents of the records of one file."""

    def __init__(self, spec: Spec, file: InputFile, counts: ReadCounts):
        self._spec, self._source, self._counts = spec, file.source, counts
        source = file.source
        self._texts, self._numbers = spec.texts(), spec.numbers()
        self._lists = {name for name, output in (spec.outputs or {}).items() if output.each}
        self._domain = self._mend(default_domain(file))
        sections = [section for sections in self._texts.values() for section in sections]
        named = [key for section in sections for key in (section.field, section.answer, section.tools)]
        named += [*self._numbers.values(), source.id_field, source.domain_field, source.lang_field, source.split_field]
        self.needed = {key for key in named if key is not None}
        """Fields that a record must have."""
        self.others = {"id", "domain", "lang"}
        """Fields that it may have."""

    def document(self, where: str, record: Any) -> Document:
        """The document of a record. Raises LeftOut or BadRecord where there is none."""
        if not isinstance(record, dict):
            fields = ", ".join(repr(field) for field in sorted(self.needed))
            raise BadRecord("not an object", f"{kind(record)}, not an object with {fields}")
        numbers = {name: self._values(record, field) for name, field in self._numbers.items()}
        texts = {name: self._sequences(record, name, sections) for name, sections in self._texts.items()}
        lengths = {name: len(texts[name]) for name in self._texts if name in self._lists}
        lengths |= {name: len(numbers[name]) for name, field in self._numbers.items() if type(record[field]) is list}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise BadRecord("lists of different lengths", f"lists of different lengths, which belong together: {told}")
        if not all(_has_text(sequence) for sequences in texts.values() for sequence in sequences):
            raise LeftOut("empty text")
        source = self._source
        return Document(
            self._mend(name_of(record, source.id_field, "id", "sources.id_field", (str, int, float)) or where),
            self._mend(where),
            source.domain
            or self._mend(name_of(record, source.domain_field, "domain", "sources.domain_field"))
            or self._domain,
            self._mend(name_of(record, source.lang_field, "lang", "sources.lang_field")),
            split_of(record, source.split_field),
            texts,
            numbers,
        )

    def _sequences(self, record: dict[str, Any], output: str, sections: list[Section]) -> list[Sequence]:
        if output not in self._lists:
            return [[self._part(record, section) for section in sections]]
        (section,) = sections
        listed = section.answer or section.field
        items = field_of(record, listed)
        if not isinstance(items, list) or not items:
            raise wrong_type(listed, f"field {listed!r}", items, "a list with items")
        return [
            [self._part({**record, listed: item}, section, f"item {i} of ")] for i, item in enumerate(items, start=1)
        ]

    def _part(self, record: dict[str, Any], section: Section, item: str = "") -> Piece | Conversation:
        """A section of a sequence; ``item`` is what errors put before the field that holds a list."""
        field, answer = section.field, section.answer
        value, place = field_of(record, field), f"{item if answer is None else ''}field {field!r}"
        if section.action != "by_role":
            if not isinstance(value, str):
                raise wrong_type(field, place, value, "a string")
            text = self._clean(value)
            self._check_length(field, len(text))
            return Piece(text, section.action == "train")
        messages = self._messages(field, value, "user", place)
        prompt = 0
        if answer is not None:
            prompt = len(messages)
            messages += self._messages(answer, field_of(record, answer), "assistant", f"{item}field {answer!r}")
        self._check_length(field, sum(len(message["content"]) for message in messages))
        tools = None if section.tools is None else self._tools(section.tools, field_of(record, section.tools))
        return Conversation(messages, section.roles, prompt, tools)

    def _tools(self, field: str, value: Any) -> list[Any] | None:
        """Tool definitions, if there are any."""
        try:
            tools = json.loads(value) if isinstance(value, str) and value else value
            if tools in (None, "", []):
                return None
            if not isinstance(tools, list):
                raise wrong_type(field, f"field {field!r}", tools, "a list of tool definitions, or its JSON text")
            return self._mend_all(tools)
        except ValueError as error:
            problem = f"field {field!r} is text that is no JSON: {error}; write a list of tool definitions"
            raise BadRecord(f"{field!r} is not JSON", problem) from None
        except RecursionError:
            raise BadRecord(f"{field!r} is nested too deep", f"field {field!r} is nested too deep") from None

    def _messages(self, field: str, value: Any, role: str, place: str) -> list[dict[str, Any]]:
        """Messages of a list, of one message, or of what ``role`` says."""
        if isinstance(value, str):
            value = {"role": role, "content": value}
        if not isinstance(value, list | dict):
            raise wrong_type(field, place, value, "a list of messages or a string")
        messages = value if isinstance(value, list) else [value]
        if not messages:
            raise BadRecord(f"{field!r} has no messages", f"{place} is an empty list; it needs messages")
        return [self._message(field, message, f"message {i} of {place}") for i, message in enumerate(messages, start=1)]

    def _message(self, field: str, message: Any, place: str) -> dict[str, Any]:
        """A message with its content cleaned; a key that is null, as tables fill up those that lack it, is left out.

        One that only calls tools need not have content.
        """
        if not isinstance(message, dict):
            raise wrong_type(field, place, message, "an object with 'role' and 'content'")
        if message.get("content") is None and message.get("tool_calls"):
            message = message | {"content": ""}
        for key in ("role", "content"):
            if key not in message:
                problem = f"{place} has no {key!r}; the keys there are: {keys_of(message)}"
                raise BadRecord(f"a message of {field!r} has no {key}", problem)
            if not isinstance(message[key], str):
                problem = f"{key!r} of {place} is {kind(message[key])}, not a string"
                raise BadRecord(f"{key} of a message of {field!r} is not a string", problem)
        try:
            mended = {key: self._mend_all(value) for key, value in message.items() if value is not None}
        except RecursionError:
            raise BadRecord(f"a message of {field!r} is nested too deep", f"{place} is nested too deep") from None
        return mended | {"content": self._clean(mended["content"])}

    def _clean(self, text: str) -> str:
        text = self._mend(text)
        for step in self._spec.clean:
            cleaned = clean_text(text, (step,))
            if cleaned != text:
                self._counts.repaired[f"changed by {step}"] += 1
                text = cleaned
        return text

    def _check_length(self, field: str, chars: int) -> None:
        if chars < self._spec.min_chars:
            raise LeftOut(f"{field!r} has fewer than {self._spec.min_chars} characters")
        if self._spec.max_chars is not None and chars > self._spec.max_chars:
            raise LeftOut(f"{field!r} has more than {self._spec.max_chars} characters")

    def _mend(self, text: str) -> str:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text, count = _SURROGATE.subn("\ufffd", text)
            self._counts.repaired["lone surrogates replaced by U+FFFD"] += count
        return text

    def _mend_all(self, value: Any) -> Any:
        match value:
            case str():
                return self._mend(value)
            case list():
                return [self._mend_all(item) for item in value]
            case dict():
                return {self._mend(key): self._mend_all(item) for key, item in value.items()}
        return value

    def _values(self, record: dict[str, Any], field: str) -> list[float]:
        value = field_of(record, field)
        if not isinstance(value, list):
            return [number(field, f"field {field!r}", value)]
        if not value:
            raise wrong_type(field, f"field {field!r}", value, "a number or a list of numbers")
        return [number(field, f"item {i} of field {field!r}", item) for i, item in enumerate(value, start=1)]


def _has_text(sequence: Sequence) -> bool:
    return any(
        not text.isspace() and text
        for part in sequence
        for text in ([part.text] if isinstance(part, Piece) else [message["content"] for message in part.messages])
    )
