"""Tokenizers that only Transformers can read, made into folders that `load_tokenizer` reads."""

import os
import warnings
from pathlib import Path

from seedbed.data.tokenizer import Tokenizer, load_tokenizer, read_backend
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, require_replaceable

VOCABULARIES = ["tokenizer.json", "vocab*", "*.model", "*.tiktoken"]
"""Files that a vocabulary may be in."""
_WANTED = [*VOCABULARIES, "tokenizer*", "merges.txt", "*tokens*.json", "config.json", "*.jinja"]
"""Files of a name on the hub that a tokenizer may be made of; not the weights."""


def import_tokenizer(name: str, out: str | Path) -> Tokenizer:
    """Read a folder or a name on the Hugging Face hub with Transformers and write its tokenizer, whole, to ``out``.

    Code that comes with a tokenizer is not run. The hub is asked once; where it cannot be reached, what was fetched
    before is taken. A tokenizer that is already at ``out`` is replaced. Raises InputError when Transformers is missing,
    when the tokenizer is not there, damaged or not to be read, when it has no fast form, when `load_tokenizer` refuses
    it, and when ``out`` holds anything else.
    """
    require_replaceable(out, "tokenizer.json")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError("importing a tokenizer needs Transformers: pip install 'seedbed[hf]'") from None
    source = name if os.path.isdir(name) else _fetched(name)
    if (file := Path(source, "tokenizer.json")).is_file():
        read_backend(file)  # damage is met here: Transformers would convert ids in the billions for minutes
    try:
        theirs = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # whatever its many readers raise: no file, no sentencepiece, damaged
        raise InputError(f"{name}: Transformers cannot read a tokenizer there: {_one_line(error)}") from None
    if not theirs.is_fast:
        raise InputError(f"{name}: {type(theirs).__name__} has no fast form (tokenizer.json), so it cannot be imported")
    with atomic_folder(out) as folder:
        theirs.save_pretrained(folder, save_jinja_files=False)
        _check(folder, name)
    return load_tokenizer(out)


def _fetched(name: str) -> str:
    """The folder in the hub's cache that holds the tokenizer ``name``. Raises InputError where it is not to be had."""
    from huggingface_hub import snapshot_download  # comes with Transformers, which would retry for a minute itself

    try:
        return snapshot_download(name, allow_patterns=_WANTED, etag_timeout=5)
    except Exception as error:  # no such name, no network, no right to it
        raise InputError(
            f"{name}: neither a folder here nor to be had from the Hugging Face hub: {_one_line(error)}"
        ) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or repr(error)


def _check(folder: Path, name: str) -> None:
    """Raise InputError about ``name`` where `load_tokenizer` refuses what was written for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the finished folder is read
        try:
            load_tokenizer(folder)
        except InputError as error:
            raise InputError(str(error).replace(str(folder), name)) from None
