"""A file of prompts to a file of answers: in batches, in order, and kept row by row when it is interrupted."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from seedbed.data.chat import Chat
from seedbed.data.template import load_template
from seedbed.data.tokenizer import SURROGATE
from seedbed.errors import InputError
from seedbed.files.jsonl import read_jsonl
from seedbed.files.parts import Parts
from seedbed.hub.generating import end_of_turn
from seedbed.hub.models import LanguageModel
from seedbed.serve.generate import end_ids, generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import chat_ids, check_ids, cut, text_ids
from seedbed.train.progress import duration

WRITTEN = ("text", "finish_reason", "prompt_tokens", "tokens", "seed")
"""Keys of an answer's row, beside those of its request."""
TOO_LONG = "too_long"
"""`finish_reason` of a prompt that was not continued, since it leaves no room."""
TELL_S = 10.0
"""Seconds between lines on how far it is."""

TooLong = Literal["drop", "cut"]


@dataclass(frozen=True)
class Request:
    """A prompt to continue, and the row that it came in."""

    row: dict[str, Any]
    ids: list[int]
    ends: set[int]
    tokens: int
    """Of the prompt as it was given; ``ids`` are fewer where it was cut, none where it is too long."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file: objects with ``prompt``, a text, or ``messages``, a conversation; other keys are kept.

    Raises InputError, with file and line, for any other row, for a key that the answer would overwrite, and where there
    is no row.
    """
    rows = []
    for number, row in read_jsonl(path):
        where = f"{path}:{number}"
        if not isinstance(row, dict) or ("prompt" in row) == ("messages" in row):
            keys = f", not {', '.join(row)}" if isinstance(row, dict) and row else ""
            raise InputError(f"{where}: give an object with either prompt or messages{keys}")
        if clash := [key for key in WRITTEN if key in row]:
            raise InputError(f"{where}: the answer would overwrite {', '.join(clash)}; name it otherwise")
        if "prompt" in row and not isinstance(row["prompt"], str):
            raise InputError(f"{where}: prompt: give a text")
        if "messages" in row and not _is_conversation(row["messages"]):
            raise InputError(f"{where}: messages: give a list of objects with role and content")
        try:
            json.dumps(row, ensure_ascii=False).encode()  # as it will stand beside its answer
        except UnicodeEncodeError:
            raise InputError(f"{where}: {SURROGATE}") from None
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: holds no row; give objects with prompt or messages, one a line")
    return rows


def _is_conversation(messages: Any) -> bool:
    if not isinstance(messages, list) or not messages:
        return False
    return all(isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in messages)


def requests(
    model: LanguageModel, rows: Iterable[dict[str, Any]], options: Options, template: str, too_long: TooLong
) -> list[Request]:
    """``rows`` as ids. ``template`` names the chat template of conversations, as in a data specification.

    A prompt that leaves no room for a token is dropped, or cut from the left so that ``max_new_tokens`` have room, or
    as many as half of what the model reads. Raises InputError where the template is missing or refuses a conversation.
    """
    chat, found = None, []
    for number, row in enumerate(rows, start=1):
        ends = end_ids(model)
        if "messages" in row:
            if chat is None:
                chat = Chat(load_template(template, model.tokenizer), model.tokenizer)
            whole = chat_ids(model.tokenizer, chat, row["messages"], f"row {number}")
            check_ids(model, whole, f"row {number}")
            ends.add(end_of_turn(model.tokenizer, chat))
        else:
            whole = text_ids(model.tokenizer, row["prompt"])
        ids = whole
        if len(whole) >= model.max_length:
            kept = model.max_length - min(options.max_new_tokens, model.max_length // 2)
            ids = cut(whole, model.tokenizer, kept) if too_long == "cut" else []
        found.append(Request(row, ids, ends, len(whole)))
    return found


def answer(
    model: LanguageModel,
    asked: Sequence[Request],
    options: Options,
    seed: int,
    samples: int,
    batch_size: int,
    parts: Parts,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row for each of ``samples`` answers to each request, in order: the request's, and the keys in WRITTEN.

    Answer number i draws by ``seed`` + i, whatever is beside it. What ``parts`` knows is not made again.
    """
    jobs = [request for request in asked for _ in range(samples)]
    left = [i for i, job in enumerate(jobs) if job.ids and str(i) not in parts]
    left.sort(key=lambda i: (sorted(jobs[i].ends), -len(jobs[i].ids)))
    began = told = time.monotonic()
    done = tokens = 0
    while left:
        ends = jobs[left[0]].ends
        batch = [i for i in left[:batch_size] if jobs[i].ends == ends]
        left = left[len(batch) :]
        answers = generate(model, [jobs[i].ids for i in batch], options, [seed + i for i in batch], ends, batch_size)
        for i, made in zip(batch, answers, strict=True):
            parts.get(str(i), lambda made=made: [made.text, made.finish, len(made.ids)])
        done, tokens = done + len(batch), tokens + sum(len(made.ids) for made in answers)
        if (now := time.monotonic()) - told > TELL_S and left:
            told, spent = now, now - began
            whole, time_left = len(parts) + len(left), duration(spent / done * len(left))
            tell(f"{len(parts):,} of {whole:,} answers, {tokens / spent:,.0f} tokens/s, about {time_left} left")
    return [_row(job, seed + i, parts, str(i)) for i, job in enumerate(jobs)]


def _row(job: Request, seed: int, parts: Parts, name: str) -> dict[str, Any]:
    text, finish, tokens = parts.get(name, lambda: None) if job.ids else (None, TOO_LONG, 0)
    values = (text, finish, job.tokens, tokens, seed)
    return {**job.row, **dict(zip(WRITTEN, values, strict=True))}


@dataclass(frozen=True)
class Counts:
    """What became of the rows."""

    rows: int
    answers: int
    finished: dict[str, int]
    """Answers by why they ended."""
    too_long: int
    """Prompts that were dropped."""
    cut: int
    """Prompts that were cut."""
    tokens: int

    def __str__(self) -> str:
        ended = ", ".join(f"{count:,} {reason}" for reason, count in self.finished.items())
        text = f"{self.rows:,} prompts, {self.answers:,} answers, {self.tokens:,} tokens; ended by {ended or 'none'}"
        text += f"; prompts too long and dropped: {self.too_long:,}" if self.too_long else ""
        return text + (f"; too long and cut: {self.cut:,}" if self.cut else "")


def counts(asked: Sequence[Request], written: Sequence[dict[str, Any]]) -> Counts:
    made = [row for row in written if row["finish_reason"] != TOO_LONG]
    return Counts(
        rows=len(asked),
        answers=len(made),
        finished=dict(Counter(row["finish_reason"] for row in made).most_common()),
        too_long=sum(not request.ids for request in asked),
        cut=sum(0 < len(request.ids) < request.tokens for request in asked),
        tokens=sum(row["tokens"] for row in made),
    )


def key(identity: str, rows: Sequence[dict[str, Any]], options: Options, **others: Any) -> dict[str, Any]:
    """Everything that decides the answers; ``identity`` is the model's, ``others`` are what `answer` is given."""
    told = hashlib.sha256(json.dumps(list(rows)).encode()).hexdigest()
    return {"model": identity, "rows": told, "options": asdict(options), **others}
