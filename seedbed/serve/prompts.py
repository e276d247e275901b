"""Prompts as ids: texts, and conversations by a chat template."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from seedbed.data.chat import Chat
from seedbed.data.tokenizer import Tokenizer
from seedbed.errors import InputError
from seedbed.hub.models import LanguageModel


def text_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text to continue, the begin of text first where the model's texts have one.

    An empty one without a begin of text starts behind the end of another document.
    """
    return [*tokenizer.start, *tokenizer.encode(text)] or [tokenizer.eos_id]


def chat_ids(tokenizer: Tokenizer, chat: Chat, messages: list[dict[str, Any]], where: str) -> list[int]:
    """Ids of a conversation and the beginning of the assistant's turn, with one begin of text, the template's or the
    tokenizer's.

    Control tokens that a message spells out are text. Each stretch between control tokens is encoded on its own, as it
    is for training. Raises InputError, which begins with ``where``, where the template cannot render the messages.
    """
    spans = chat.prompt(messages, where)
    encoded = iter(tokenizer.encode_batch([span.text for span in spans if not span.control]))
    parts = [[tokenizer.special_tokens[span.text]] if span.control else next(encoded) for span in spans]
    ids = list(chain.from_iterable(parts))
    return ids if ids[:1] == [tokenizer.bos_id] else [*tokenizer.start, *ids]


def check_ids(model: LanguageModel, ids: Sequence[int], where: str) -> None:
    """Raise InputError, which begins with ``where``, for ids that ``model`` cannot read: of no token, or of a control
    token that was added to its tokenizer behind the last row of its embedding."""
    if lost := set(ids) - model.readable:
        raise InputError(f"{where}: {min(lost)} is the id of no token that {model.name} has an embedding of")


def cut(ids: Sequence[int], tokenizer: Tokenizer, longest: int) -> list[int]:
    """The begin of text and the last ids of a prompt that is longer than ``longest``."""
    if len(ids) <= longest:
        return list(ids)
    start = [ids[0]] if ids[0] == tokenizer.bos_id else []
    return [*start, *ids[len(ids) - longest + len(start) :]]
