"""The tokenizer that came with a checkpoint of another maker."""

import json
import shutil
import weakref
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from seedbed.data.foreign import VOCABULARIES
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.data.tokenizer_config import read_object
from seedbed.errors import InputError
from seedbed.hub.foreign import Foreign
from seedbed.hub.foreign_words import one_line

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

_SETTINGS = "tokenizer_config.json"
_ENDS = ("eos_token", "sep_token")


def foreign_tokenizer(foreign: Foreign, config: "PreTrainedConfig") -> Tokenizer:
    """The tokenizer beside the weights, or the one in a GGUF file.

    What `load_tokenizer` does not read as it lies there (vocabularies of other formats, one that does not say which
    token ends a document) Transformers writes to a folder that goes with the tokenizer; the end is then the one that
    the model's configuration names. A text begins as Transformers begins it. Raises InputError where there is no
    tokenizer, or no token ends a document.
    """
    tokenizer = _readable(foreign, config)
    tokenizer.start = tokenizer.library_start()  # as the model was trained; a begin of text may be named for nothing
    return tokenizer


def _readable(foreign: Foreign, config: "PreTrainedConfig") -> Tokenizer:
    if not foreign.gguf and (foreign.folder / "tokenizer.json").is_file() and _names_an_end(foreign.folder):
        return load_tokenizer(foreign.folder)
    theirs = _theirs(foreign)
    folder = Path(mkdtemp(prefix="seedbed-"))
    try:
        theirs.save_pretrained(folder)
        if not _names_an_end(folder):
            _name_the_end(folder, theirs, config, foreign)
        tokenizer = load_tokenizer(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(tokenizer, shutil.rmtree, folder, ignore_errors=True)
    return tokenizer


def _theirs(foreign: Foreign) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    if not foreign.gguf and not _any_file(foreign.folder, VOCABULARIES):
        raise InputError(
            f"{foreign.path}: has no tokenizer, without which it cannot read text; copy tokenizer.json and "
            "tokenizer_config.json of the model into its folder"
        )
    try:
        found = AutoTokenizer.from_pretrained(
            foreign.folder, gguf_file=foreign.gguf, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise InputError(f"{foreign.path}: Transformers cannot read a tokenizer there: {one_line(error)}") from None
    if not found.is_fast:
        raise InputError(f"{foreign.path}: {type(found).__name__} has no fast form (tokenizer.json), so it is not read")
    return found


def _any_file(folder: Path, patterns: Iterable[str]) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _names_an_end(folder: Path) -> bool:
    files = [folder / name for name in (_SETTINGS, "special_tokens_map.json")]
    return files[0].is_file() and any(read_object(file).get(key) for file in files if file.is_file() for key in _ENDS)


def _name_the_end(
    folder: Path, theirs: "PreTrainedTokenizerBase", config: "PreTrainedConfig", foreign: Foreign
) -> None:
    """Write into the settings in ``folder`` which token the model ends a text with."""
    ends = config.eos_token_id
    token = None if ends is None else theirs.convert_ids_to_tokens(ends[0] if isinstance(ends, list) else ends)
    if token is None:
        raise InputError(
            f'{foreign.path}: neither tokenizer nor model names the token that ends a document; add "eos_token" to '
            f"{_SETTINGS}"
        )
    settings = read_object(folder / _SETTINGS)
    (folder / _SETTINGS).write_text(json.dumps(settings | {"eos_token": token}, ensure_ascii=False), encoding="utf-8")
