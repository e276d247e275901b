"""Conversations as text: a Jinja template writes control tokens and content, and this file keeps the two apart."""

import json
import re
from itertools import islice
from typing import Any, NamedTuple

from jinja2 import meta

from seedbed.data.document import Conversation
from seedbed.data.jinja import environment
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys of a message under which its reasoning stands, by habit of the template."""
_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # Unicode keeps them for internal use


class Span(NamedTuple):
    """A stretch of a sequence."""

    text: str
    trained: bool
    control: bool
    """The text is the name of one control token."""


class _Marks(NamedTuple):
    """Characters that occur nowhere in a conversation."""

    broken: str
    """Behind each character of what only looks like a control token, since it stands in a message."""
    start: str
    end: str
    """Around what is trained."""
    content: str
    """In place of a message's content, to see where it stands."""


class Chat:
    """A template, compiled, for one tokenizer."""

    def __init__(self, template: str, tokenizer: Tokenizer):
        self._source = template
        self._template = environment().from_string(template)
        self._bos, self._eos = tokenizer.bos_token, tokenizer.eos_token
        reads = meta.find_undeclared_variables(environment().parse(template))
        # by its name alone, as in ChatML of SmolLM2: one that is also written as bos_token would come twice
        self._opens_turns = self._bos is not None and self._bos in template and "bos_token" not in reads
        self._names = {"eos_token": self._eos} | ({} if self._bos is None else {"bos_token": self._bos})
        longest_first = sorted(tokenizer.special_tokens, key=lambda token: (-len(token), token))
        self._tokens = "|".join(map(re.escape, longest_first))
        self._marked = re.search(r"\{%[-+]?\s*generation\b", template) is not None

    def render(self, conversation: Conversation, where: str, last: bool = True) -> list[Span]:
        """Spans of the conversation in order, without the begin-of-text token.

        Control tokens are what the template writes; the same text in a message or a tool stays text. Trained is, where
        the assistant alone is, from the first message on, and the template marks what it generates, what is marked;
        otherwise what each message of a trained role behind the prompt adds: after the generation prompt for the
        assistant, from its content on for any other, to the turn's last control token. The control token that ends a
        trained stretch is trained too, and where ``last`` and the template ends without one, the end-of-text token is
        appended: the end of an answer can be learned.

        Raises InputError where the template cannot render the conversation, where it writes a second begin of text
        (unless it begins with that token and only spells it out, as one that opens turns), and where it has no marks
        and writes earlier turns otherwise than when they were the last.
        """
        safe, marks = self._safe(conversation, where)
        if self._marked and safe.roles == ["assistant"] and safe.prompt == 0:
            text = self._text(safe, marks, where)
        else:
            text = self._mark_turns(safe, marks, where)
        spans = self._without_bos(self._split(text, marks), where)
        if last and not _ended(spans):
            spans.append(Span(self._eos, False, True))
        return _with_ends(spans)

    def prompt(self, messages: list[dict[str, Any]], where: str) -> list[Span]:
        """Spans of what the assistant is to answer, with the beginning of its turn; the begin of text is among them
        where the template writes one. Control tokens are told from text as in `render`, which raises the same."""
        safe, marks = self._safe(Conversation(messages, []), where)
        text = re.sub(f"[{marks.start}{marks.end}]", "", self._text(safe, marks, where, prompt=True))
        spans = self._split(text, marks)
        self._without_bos(spans, where)  # which refuses a second one
        return spans

    def _safe(self, conversation: Conversation, where: str) -> tuple[Conversation, _Marks]:
        """The conversation as the template gets it, and the marks in it."""
        marks = self._free_marks(conversation, where)
        messages = [_as_transformers(_broken(message, self._tokens, marks.broken)) for message in conversation.messages]
        tools = _broken(conversation.tools, self._tokens, marks.broken)
        return conversation._replace(messages=messages, tools=tools), marks

    def _free_marks(self, conversation: Conversation, where: str) -> _Marks:
        text = self._source + json.dumps([conversation.messages, conversation.tools], ensure_ascii=False)
        # neither the character nor the form that a template's tojson(ensure_ascii=True) would give it
        unused = (c for c in _NONCHARACTERS if c not in text and f"{ord(c):x}" not in text)
        free = list(islice(unused, 4))
        if len(free) < 4:
            raise InputError(f"{where}: the conversation holds nearly all of U+FDD0 to U+FDEF, which are no characters")
        return _Marks(*free)

    def _text(self, conversation: Conversation, marks: _Marks, where: str, prompt: bool = False) -> str:
        messages = conversation.messages
        try:
            return self._template.render(
                messages=messages,
                tools=conversation.tools,
                documents=None,
                add_generation_prompt=prompt,
                generation_start=marks.start,
                generation_end=marks.end,
                **self._names,
            )
        except Exception as error:  # a template is a program and may fail in any way
            raise InputError(f"{where}: chat template, on the first {len(messages)} messages: {error}") from None

    def _mark_turns(self, conversation: Conversation, marks: _Marks, where: str) -> str:
        """The text, with marks around what the messages of trained roles add to it."""

        def text(some: list[dict[str, Any]], prompt: bool = False) -> str:
            rendered = self._text(conversation._replace(messages=some), marks, where, prompt)
            return re.sub(f"[{marks.start}{marks.end}]", "", rendered)

        messages = conversation.messages
        whole = text(messages)
        pieces, done = [], 0
        for i, message in enumerate(messages):
            if i < conversation.prompt or message.get("role") not in conversation.roles:
                continue
            if message["role"] == "assistant":
                header = text(messages[:i], prompt=True)
            else:  # no prompt asks for this role: see where its content would stand
                header = text([*messages[:i], {**message, "content": marks.content}]).partition(marks.content)[0]
            turn = text(messages[: i + 1])
            if not (whole.startswith(turn) and turn.startswith(header) and len(header) >= done):
                raise InputError(
                    f"{where}: message {i + 1}: what is trained cannot be told: the chat template writes this turn "
                    "otherwise in the prompt or before later turns (it drops turns, or strips thinking); put "
                    "{% generation %} marks into the template, or end the conversation with its one trained turn"
                )
            end = max((m.end() for m in self._controls(marks).finditer(turn, len(header))), default=len(turn))
            if turn[end:].strip():
                end = len(turn)
            pieces += [whole[done : len(header)], marks.start, whole[len(header) : end], marks.end]
            done = end
        return "".join([*pieces, whole[done:]])

    def _controls(self, marks: _Marks) -> re.Pattern[str]:
        """Control tokens that the template wrote."""
        return re.compile(f"(?:{self._tokens})(?!{marks.broken})")

    def _split(self, text: str, marks: _Marks) -> list[Span]:
        text = text.replace(marks.end + marks.start, "")  # one stretch, so that no token border is made inside
        removed = re.compile(rf"{marks.broken}|\\u{ord(marks.broken):x}")
        spans, trained = [], False
        pieces = re.split(f"([{marks.start}{marks.end}]|{self._controls(marks).pattern})", text)
        for i, piece in enumerate(pieces):
            if piece in (marks.start, marks.end):
                trained = piece == marks.start
            elif i % 2:
                spans.append(Span(piece, trained, True))
            elif piece:
                spans.append(Span(removed.sub("", piece), trained, False))
        return spans

    def _without_bos(self, spans: list[Span], where: str) -> list[Span]:
        if spans and spans[0].control and spans[0].text == self._bos:
            spans = spans[1:]
            if self._opens_turns:
                return spans
        if self._bos != self._eos and any(span.control and span.text == self._bos for span in spans):
            raise InputError(
                f"{where}: the chat template writes {self._bos} twice, or not at the start; a sequence has one, and "
                "where the template writes none it is prepended"
            )
        return spans


def _broken(value: Any, tokens: str, mark: str) -> Any:
    """``value`` with ``mark`` behind each character of each control token in its strings."""
    if isinstance(value, str):
        return re.sub(tokens, lambda found: "".join(c + mark for c in found[0]), value)
    if isinstance(value, dict):
        return {_broken(key, tokens, mark): _broken(item, tokens, mark) for key, item in value.items()}
    if isinstance(value, list):
        return [_broken(item, tokens, mark) for item in value]
    return value


def _as_transformers(message: dict[str, Any]) -> dict[str, Any]:
    """The message as Transformers hands it to a template: no nulls, and its reasoning under the names that are read."""
    message = {key: value for key, value in message.items() if value is not None}
    names = [name for name in REASONING if name in message]
    return {"thinking": message[names[0]], **message, "reasoning_content": message[names[0]]} if names else message


def _ended(spans: list[Span]) -> bool:
    """Whether nothing but space follows the last control token."""
    written = [span for span in spans if span.control or span.text.strip()]
    return bool(written) and written[-1].control


def _with_ends(spans: list[Span]) -> list[Span]:
    """``spans`` in which a trained stretch goes on through space to the control token that ends it, if one does."""
    spans = list(spans)
    for i, span in enumerate(spans):
        after_end = i > 0 and spans[i - 1].trained and not span.text.strip()  # a marked line end behind the end of turn
        if not span.trained or span.control or after_end:
            continue
        blank = i + 1 < len(spans) and not spans[i + 1].control and not spans[i + 1].text.strip()
        end = i + 2 if blank else i + 1
        if end < len(spans) and spans[end].control:
            spans[i + 1 : end + 1] = [other._replace(trained=True) for other in spans[i + 1 : end + 1]]
    return spans
