"""The tokenizer of an export: it encodes a text as the model was trained to read it."""

import json
import warnings
from pathlib import Path

import tokenizers
from tokenizers import processors

from seedbed.data.tokenizer import Tokenizer
from seedbed.data.tokenizer_config import read_object
from seedbed.hub.foreign_words import quiet

_PROBES = ("hello", " the stone 12", "\u4e2d\u6587 \U0001f600\n\n  x")


def export_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer into ``folder`` for AutoTokenizer: a text begins as our models read it, with the begin of
    text where they have one, and the end of text pads.

    Warns where AutoTokenizer still gives other ids for a text than ours does.
    """
    tokenizer.save(folder)
    (folder / "training.json").unlink(missing_ok=True)
    if tokenizer.library_start() != tokenizer.start:
        _begin_with(tokenizer, folder / "tokenizer.json")
    file = folder / "tokenizer_config.json"
    settings = {"pad_token": tokenizer.eos_token, "padding_side": "left"} | read_object(file)
    file.write_text(json.dumps(settings, ensure_ascii=False, indent=1), encoding="utf-8")
    _compare(tokenizer, folder)


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


def _compare(tokenizer: Tokenizer, folder: Path) -> None:
    from transformers import AutoTokenizer

    with quiet():
        theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    other = [text for text in _PROBES if theirs(text).input_ids != tokenizer.start + tokenizer.encode(text)]
    if other:
        warnings.warn(
            f"AutoTokenizer gives other ids for {other[0]!r} than the tokenizer of this run: scores by other libraries "
            "will differ from ours",
            stacklevel=3,
        )
