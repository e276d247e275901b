"""Instructions with their responses: records of the usual shapes, as the tokens that a model reads."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.data.chat import REASONING, Span
from seedbed.data.document import Conversation, Piece
from seedbed.data.document import Sequence as Parts
from seedbed.data.encode import Encoder
from seedbed.data.fields import BadRecord, LeftOut, field_of, keys_of, kind, wrong_type
from seedbed.data.formats import read_records
from seedbed.data.inputs import list_inputs
from seedbed.data.sections import Source
from seedbed.data.template import load_template
from seedbed.data.texts import in_turns
from seedbed.data.tokenizer import SURROGATE, Tokenizer
from seedbed.errors import InputError
from seedbed.files.jsonl import OR_SKIP, OnBad, ReadCounts

MESSAGES, INPUT = "messages", "input"
PROMPTS = ("prompt", "instruction", "question")
RESPONSES = ("response", "output", "completion", "answer")
"""Keys under which the two are looked for, in this order."""
PLAIN = "none"
"""In place of a chat template: texts, joined by JOINT."""
JOINT = "\n\n"
REWRITTEN = "the template rewrites the answer"

Message = dict[str, Any]


class Exchange(NamedTuple):
    id: str
    where: str
    """`file:line`."""
    instruction: str
    response: str
    prompt_ids: list[int]
    """All that stands before the response: begin of text where the tokenizer has one, instruction, what the chat
    template writes around it."""
    response_ids: list[int]
    """Of its text alone: nothing that the chat template writes before it or behind."""


@dataclass
class Exchanges:
    found: list[Exchange]
    template: str
    """`tokenizer`, `chatml`, a file, or PLAIN."""
    skipped: Counter[str]
    """Records that are left out, by reason."""
    files: list[str]
    """That were read."""
    asked: int | None = None
    """Records that were asked for, in turns from the files; None: all."""


@dataclass(frozen=True)
class Fields:
    """Keys of a record; None: the usual ones are looked for."""

    prompt: str | None = None
    """Of a text, or of a list of messages."""
    response: str | None = None
    """Of a text, or of a message."""


def read_exchanges(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    length: int,
    fields: Fields = Fields(),
    chat_template: str | None = None,
    count: int | None = None,
    on_bad: OnBad = "strict",
) -> Exchanges:
    """``count`` instructions with a response (None: all) of files of any kind that `data prepare` reads: the first ones
    of each file, taken in turns.

    Messages: the last turn of the assistant is the response, all before it the instruction. ``chat_template`` None is
    the tokenizer's own where it has one, else plain text. Left out and counted: what has no instruction, no response
    or one of a single token, what is longer than ``length`` tokens, since a cut would change the condition, an answer
    with reasoning apart from its text, which would be part of the condition, and one that the template rewrites.

    Raises InputError for a file that is missing or damaged, a template that cannot be used, a record of another shape
    (counted where ``on_bad`` is "skip"), and where nothing is left.
    """
    name = chat_template or (PLAIN if tokenizer.chat_template is None else "tokenizer")
    template = None if name == PLAIN else load_template(name, tokenizer)
    encoder = Encoder(tokenizer, template)
    counts = ReadCounts()
    files = list_inputs([Source(path=str(path)) for path in paths])
    read = partial(_exchange, fields=fields, encoder=encoder, plain=template is None)
    found = in_turns([_read(read_records(file, on_bad, counts), read, length, on_bad, counts) for file in files], count)
    if not found:
        why = ", ".join(f"{n:,} × {reason}" for reason, n in counts.skipped.items()) or "the input is empty"
        raise InputError(f"{paths[0]}: no instruction with a response to read ({why})")
    return Exchanges(found, name, counts.skipped, [file.path for file in files], count)


def _read(
    records: Iterable[tuple[str, Any]],
    read: Callable[[Any, str], Exchange],
    length: int,
    on_bad: OnBad,
    counts: ReadCounts,
) -> Iterator[Exchange]:
    """What ``read`` makes of records; those that are left out are counted."""
    for where, record in records:
        try:
            exchange = read(record, where)
            if len(exchange.prompt_ids) + len(exchange.response_ids) > length:
                raise LeftOut(f"longer than {length:,} tokens")
        except LeftOut as reason:
            counts.skip(str(reason), where, record)
        except BadRecord as bad:
            reason, problem = bad.args
            if on_bad == "strict":
                raise InputError(f"{where}: {problem}{OR_SKIP}") from None
            counts.skip(reason, where, record)
        except InputError as refused:  # by the chat template
            if on_bad == "strict":
                raise InputError(f"{refused}{OR_SKIP}") from None
            counts.skip("refused by the chat template", where, record)
        else:
            yield exchange


def _exchange(record: Any, where: str, fields: Fields, encoder: Encoder, plain: bool) -> Exchange:
    if not isinstance(record, dict):
        raise BadRecord("not an object", f"{kind(record)}, not an object with an instruction and a response")
    before, answer = _turns(record, fields)
    _check_utf8([*before, answer])
    instruction = JOINT.join(message["content"] for message in before)
    response = answer["content"]
    if not instruction.strip():
        raise LeftOut("no instruction")
    if not response.strip():
        raise LeftOut("empty response")
    if any(answer.get(key) for key in REASONING):
        raise LeftOut("an answer with reasoning apart from its text, which would be read before it")
    parts: Parts = [Piece(instruction + JOINT, False), Piece(response, True)]
    if not plain:
        parts = [Conversation([*before, answer], ["assistant"], prompt=len(before))]
    spans = _answered(encoder.spans(parts, where), response)
    (encoded,) = encoder.encode_spans([spans])
    assert encoded.trained is not None  # the instruction is only read
    start = int(encoded.trained.argmax())
    ids = encoded.ids.tolist()
    if len(ids) - start < 2:
        raise LeftOut("a response of a single token")
    id = record.get("id")
    return Exchange(where if id in (None, "") else str(id), where, instruction, response, ids[:start], ids[start:])


def _answered(spans: list[Span], response: str) -> list[Span]:
    """``spans`` up to the end of the response, of which nothing before its text is trained: what a template writes with
    the answer, such as a header or an empty thought, is read before it, and what ends the turn is left off.

    Raises LeftOut where the response is not found there as it is.
    """
    texts = [i for i, span in enumerate(spans) if span.trained and not span.control and span.text.strip()]
    if not texts:
        raise LeftOut(REWRITTEN)
    *before, last = spans[: texts[-1] + 1]
    head, found, _ = last.text.rpartition(response.strip())
    if not found:
        raise LeftOut(REWRITTEN)
    given = [span._replace(trained=False) for span in before]
    start = len(head) - head.endswith(" ")  # a space belongs to the token that it begins
    if start:
        given.append(Span(head[:start], False, False))
    return [*given, Span(head[start:] + found, True, False)]


def _turns(record: Message, fields: Fields) -> tuple[list[Message], Message]:
    """The messages of the instruction, and the assistant's."""
    if fields == Fields() and MESSAGES in record:
        messages = _messages(record, MESSAGES)
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        if last is None:
            raise LeftOut("no turn of the assistant")
        return messages[:last], messages[last]
    prompt = fields.prompt or _first(record, PROMPTS, "an instruction", "--prompt-field")
    response = fields.response or _first(record, RESPONSES, "a response", "--response-field")
    value = field_of(record, prompt, "--prompt-field")
    before = _messages(record, prompt) if isinstance(value, list) else [_message("user", record, prompt)]
    if fields.prompt is None and prompt == "instruction" and record.get(INPUT):
        before[-1] = before[-1] | {"content": before[-1]["content"] + JOINT + _text(record, INPUT)}
    value = field_of(record, response, "--response-field")
    if isinstance(value, dict):
        return before, value | {"role": "assistant", "content": _text(value, "content")}
    return before, _message("assistant", record, response)


def _first(record: Message, names: Sequence[str], what: str, option: str) -> str:
    for name in names:
        if name in record:
            return name
    raise BadRecord(
        f"no field with {what}",
        f"no field with {what} ({MESSAGES}, {', '.join(names)}); the keys there are: {keys_of(record)}; "
        f"name the right one ({option})",
    )


def _message(role: str, record: Message, field: str) -> Message:
    return {"role": role, "content": _text(record, field)}


def _text(record: Message, field: str) -> str:
    value = field_of(record, field)
    if not isinstance(value, str):
        raise wrong_type(field, f"field {field!r}", value, "a string")
    return value


def _messages(record: Message, field: str) -> list[Message]:
    """Messages with a role and a text each."""
    value = record[field]
    if not isinstance(value, list):
        raise wrong_type(field, f"field {field!r}", value, "a list of messages")
    for place, message in enumerate(value, start=1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise wrong_type(field, f"message {place} of field {field!r}", message, "an object with role and content")
    return value


def _check_utf8(messages: Sequence[Message]) -> None:
    try:
        for message in messages:
            message["content"].encode("utf-8")
    except UnicodeEncodeError:
        raise BadRecord("lone surrogate", SURROGATE) from None
