"""The tokenizer of an export: it encodes a text as the model was trained to read it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import processors

from seedbed.data.tokenizer import Tokenizer
from seedbed.data.tokenizer_config import read_object

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBES = ("hello", " the stone 12", "\u4e2d\u6587 \U0001f600\n\n  x")


def export_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer into ``folder`` for AutoTokenizer: a text begins as our models read it, with the begin of
    text where they have one, and the end of text pads."""
    tokenizer.save(folder)
    (folder / "training.json").unlink(missing_ok=True)
    if tokenizer.library_start() != tokenizer.start:
        _begin_with(tokenizer, folder / "tokenizer.json")
    file = folder / "tokenizer_config.json"
    settings = {"pad_token": tokenizer.eos_token, "padding_side": "left"} | read_object(file)
    file.write_text(json.dumps(settings, ensure_ascii=False, indent=1), encoding="utf-8")


def _begin_with(tokenizer: Tokenizer, file: Path) -> None:
    """Make the library put before a text what ours begins with."""
    backend = tokenizers.Tokenizer.from_file(str(file))
    tokens = [token for token, i in tokenizer.special_tokens.items() if i in tokenizer.start]
    named = [(token, tokenizer.special_tokens[token]) for token in tokens]
    start = processors.TemplateProcessing(
        single=" ".join([*tokens, "$A"]), pair=" ".join([*tokens, "$A", "$B"]), special_tokens=named
    )
    backend.post_processor = start  # pyright: ignore[reportAttributeAccessIssue]
    file.write_text(backend.to_str(pretty=True), encoding="utf-8")


def other_ids(tokenizer: Tokenizer, theirs: "PreTrainedTokenizerBase") -> list[str]:
    """The texts, of a few, for which AutoTokenizer gives ``theirs`` other ids than our ``tokenizer``."""
    return [text for text in _PROBES if theirs(text).input_ids != tokenizer.start + tokenizer.encode(text)]
