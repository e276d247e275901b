"""Tokenizers that only Transformers can read, made into folders that `load_tokenizer` reads."""

import warnings
from pathlib import Path

from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, require_replaceable


def import_tokenizer(name: str, out: str | Path) -> Tokenizer:
    """Read a folder or a name on the Hugging Face hub with Transformers and write its tokenizer, whole, to ``out``.

    Code that comes with a tokenizer is not run. A tokenizer that is already at ``out`` is replaced. Raises InputError
    when Transformers is missing or cannot read it, when it has no fast form, when `load_tokenizer` refuses it, and
    when ``out`` holds anything else.
    """
    require_replaceable(out, "tokenizer.json")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError("importing a tokenizer needs Transformers: pip install 'seedbed[hf]'") from None
    try:
        theirs = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # whatever its many readers raise: no file, no network, no sentencepiece, damaged
        first = (str(error).strip() or repr(error)).splitlines()[0]
        raise InputError(f"{name}: Transformers cannot read a tokenizer there: {first}") from None
    if not theirs.is_fast:
        raise InputError(f"{name}: {type(theirs).__name__} has no fast form (tokenizer.json), so it cannot be imported")
    with atomic_folder(out) as folder:
        theirs.save_pretrained(folder, save_jinja_files=False)
        _check(folder, name)
    return load_tokenizer(out)


def _check(folder: Path, name: str) -> None:
    """Raise InputError about ``name`` where `load_tokenizer` refuses what was written for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the finished folder is read
        try:
            load_tokenizer(folder)
        except InputError as error:
            raise InputError(str(error).replace(str(folder), name)) from None
