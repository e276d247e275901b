"""What a tokenizer's folder says beside `tokenizer.json`: names of control tokens, chat template, padding."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.errors import InputError

MAX_PADDING = 2**16
"""Rows of an embedding above the vocabulary, fewer than this."""


class Settings(NamedTuple):
    bos_token: str | None
    eos_token: str
    chat_template: str | None
    """Jinja text."""
    padded_vocab_size: int
    """Rows that a model's embedding should have."""
    begins: bool
    """Whether a text begins with bos_token when a model reads it: yes, unless `add_bos_token` is false."""


def read_settings(folder: Path, tokens: Mapping[str, int]) -> Settings:
    """Settings of the tokenizer in ``folder`` whose ``tokens`` have these ids.

    Raises InputError where a setting is of the wrong kind or names no token, and where nothing ends a document.
    """
    file = folder / "tokenizer_config.json"
    config, names = read_object(file), folder / "special_tokens_map.json"  # where older folders keep the names
    named = read_object(names) if names.is_file() else {}

    def token(key: str) -> str | None:
        value = config.get(key) or named.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None and (not isinstance(value, str) or value not in tokens):
            raise InputError(f"{file}: {key} is {value!r}; name a token of the vocabulary")
        return value

    eos_token = token("eos_token") or token("sep_token")
    if eos_token is None:
        raise InputError(f'{file}: no eos_token; add "eos_token": the token of the vocabulary that ends a document')
    size = max(tokens.values()) + 1
    padded = config.get("padded_vocab_size", size)
    if type(padded) is not int or not size <= padded < size + MAX_PADDING:
        raise InputError(
            f"{file}: padded_vocab_size is {padded!r}; the vocabulary has {size} ids, and fewer than {MAX_PADDING} "
            "more may be added"
        )
    begins = config.get("add_bos_token") is not False
    return Settings(token("bos_token"), eos_token, _chat_template(folder, config), padded, begins)


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """The folder's template; of several the one named default."""
    file = folder / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(template, list):
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise InputError(f"{folder / 'tokenizer_config.json'}: chat_template is no text")
    return template


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises InputError where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a JSON object")
    return value
