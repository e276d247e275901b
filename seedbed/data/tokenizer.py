"""One face for our tokenizers and any fast tokenizer of Hugging Face.

A tokenizer is a folder with `tokenizer.json` and `tokenizer_config.json`, as Transformers' AutoTokenizer reads it.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers.decoders import DecodeStream

from seedbed.data.tokenizer_config import read_object, read_settings
from seedbed.data.tokenizer_json import Spelling, check_ids, spelling, unknown_token, without_prefix_space
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage

_NEEDED = ("tokenizer.json", "tokenizer_config.json")
_FILES = (*_NEEDED, "special_tokens_map.json", "chat_template.jinja", "training.json")
_PROBE = "hello !  it's\t\r\n\0 x\u00a0ab \u00e9 e\u0301 \u4e2d\u6587 \U0001f600 <|x|> 1234 A\n\n"
SURROGATE = "a text holds a lone surrogate, which UTF-8 cannot express; replace it"


class Tokenizer:
    """A tokenizer in a folder; control tokens are added by the caller, never parsed from text.

    ``lossless``: decode(encode(text)) is the text, encoded parts can be joined, and ``token_bytes`` is exact. A
    vocabulary of SentencePiece spells the space as U+2581, so that it reads this one character as a space.
    """

    def __init__(self, folder: Path, backend: tokenizers.Tokenizer, content: dict[str, Any], lossless: bool):
        """``backend`` is made from ``content``, what `tokenizer.json` in ``folder`` holds."""
        self.folder = folder
        self.lossless = lossless
        self.hash = hashlib.sha256((folder / _NEEDED[0]).read_bytes()).hexdigest()
        self._backend = backend
        self._spelling = spelling(content)
        self._tokens = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._tokens.values()) + 1
        """One more than the largest id."""
        settings = read_settings(folder, self._tokens)
        self.bos_token, self.eos_token = settings.bos_token, settings.eos_token
        self.bos_id = None if self.bos_token is None else self._tokens[self.bos_token]
        self.eos_id = self._tokens[self.eos_token]
        self.start = [self.bos_id] if self.bos_id is not None and settings.begins else []
        """What a text begins with when a model reads it; `library_start` says what another library does."""
        self.chat_template = settings.chat_template
        """Jinja text, where the folder has one."""
        self.padded_size = settings.padded_vocab_size
        """Rows that a model's embedding should have; those from ``vocab_size`` on stand for nothing."""
        backend.add_special_tokens(
            [t for t in (self.bos_token, self.eos_token) if t is not None]
        )  # where only named so
        added = sorted(backend.get_added_tokens_decoder().items())
        self.special_tokens = {token.content: i for i, token in added if token.special}
        """Control tokens with their ids, in the order of ids."""
        # A model that looks for whole words (Unigram) finds control tokens in text that spells them. Unknown text is
        # no control token.
        unknown = None if lossless else unknown_token(content)
        found = backend.encode_batch_fast(list(self.special_tokens), add_special_tokens=False)
        pairs = zip(self.special_tokens.items(), found, strict=True)
        self._spelled_out = {i for (token, i), encoding in pairs if token != unknown and i in encoding.ids}

    def library_start(self) -> list[int]:
        """The ids that `tokenizer.json` itself, and so Transformers, puts before a text: many name a begin of text and
        put none."""
        marked, plain = (self._backend.encode("a", add_special_tokens=added).ids for added in (True, False))
        places = (place for place in range(len(marked)) if marked[place : place + len(plain)] == plain)
        return marked[: next(places, 0)]

    def token_id(self, token: str) -> int | None:
        """Id of a token, control tokens among them; None where the vocabulary lacks it."""
        return self._tokens.get(token)

    def same_tokens(self, other: "Tokenizer") -> bool:
        """Whether both have the same tokens under the same ids, and begin texts with the same one."""
        return (self._tokens, self.bos_id) == (other._tokens, other.bos_id)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without control tokens; "<|eos|>" inside a text stays text.

        Raises InputError for a text with lone surrogates, which has no UTF-8 form.
        """
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:
            if all(isinstance(text, str) for text in texts):
                raise InputError(SURROGATE) from None
            raise
        batch = [encoding.ids for encoding in encodings]
        if self._spelled_out:
            for index, ids in enumerate(batch):
                if not self._spelled_out.isdisjoint(ids):
                    batch[index] = self._encode_torn(texts[index])
        return batch

    def _encode_torn(self, text: str) -> list[int]:
        """Ids of a text in which the model finds control tokens: torn in two, each is text again."""
        found = self._backend.encode(text, add_special_tokens=False)
        cuts = [start + 1 for i, (start, _) in zip(found.ids, found.offsets, strict=True) if i in self._spelled_out]
        parts = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
        encodings = self._backend.encode_batch_fast(parts, add_special_tokens=False)
        return list(chain.from_iterable(encoding.ids for encoding in encodings))

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without control tokens."""
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; control tokens are left out, bytes that are not UTF-8 become U+FFFD."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=True)

    def decode_stream(self) -> Callable[[int], str]:
        """A function that takes ids one after the other and returns the text that each completes; control tokens are
        left out. Bytes that are no whole character, or no UTF-8 so far, wait for what follows."""
        stream, backend = DecodeStream(skip_special_tokens=True), self._backend
        return lambda token: stream.step(backend, token) or ""

    def token_bytes(self) -> np.ndarray:
        """Raw bytes that each id stands for: [V] uint16, 0 for control tokens and unused ids.

        Summed over a document's tokens it is the length of its UTF-8 form where the tokenizer is lossless; else
        about that of what decoding gives, without the spaces that it puts between words.
        """
        lengths = np.zeros(self.vocab_size, dtype=np.uint16)
        for token, i in self._tokens.items():
            lengths[i] = self._spelling.n_bytes(token)
        for i, added in self._backend.get_added_tokens_decoder().items():
            lengths[i] = 0 if added.special else len(added.content.encode("utf-8"))
        return lengths

    def known(self) -> np.ndarray:
        """Which ids stand for a token: [V] bool. Foreign vocabularies have holes."""
        known = np.zeros(self.vocab_size, dtype=np.bool_)
        known[list(self._tokens.values())] = True
        return known

    def save(self, folder: str | Path) -> None:
        """Copy the tokenizer's files into ``folder``, byte for byte."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, Path(folder) / name)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Read the folder of any fast tokenizer: byte-level BPE, SentencePiece, Unigram, WordPiece.

    A space that it would put before each text is not added, where text survives encoding and decoding byte for byte
    without it. A tokenizer that text does not survive is used as it is, and a warning says so. Raises InputError when
    a file is missing or damaged, when a folder made here was changed (the copies in stores and checkpoints are listed
    there), or when no token ends a document.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make one with `seedbed tokenizer train` or `tokenizer import`")
    for name in _NEEDED:
        if not (folder / name).is_file():
            raise InputError(
                f"{folder}: not a tokenizer folder ({name} is missing); `seedbed tokenizer import {folder}` reads "
                "what else Transformers knows"
            )
    if (folder / COMMIT).is_file() and (damage := folder_damage(folder, only=_FILES)):  # others' too in an export
        raise InputError(
            f"{folder}: {damage}; make or copy the tokenizer again, or remove {COMMIT} where you changed it on purpose"
        )
    file = folder / _NEEDED[0]
    content, backend = read_backend(file)
    spelled = spelling(content)
    if not (lossless := _survives(backend, spelled)):
        unprefixed = _backend(without_prefix_space(content), file)
        if lossless := _survives(unprefixed, spelled):
            backend = unprefixed
    tokenizer = Tokenizer(folder, backend, content, lossless)
    if not lossless:
        warnings.warn(
            f"{folder}: text does not survive this tokenizer (it normalises, lower-cases, or lacks characters): "
            "decoding gives another text, and bits per byte are approximate",
            stacklevel=2,
        )
    return tokenizer


def read_backend(file: Path) -> tuple[dict[str, Any], tokenizers.Tokenizer]:
    """What a `tokenizer.json` holds, and the library's tokenizer made of it. Raises InputError where it is damaged."""
    content = read_object(file)
    backend = _backend(content, file)
    check_ids(content, file)
    return content, backend


def _backend(content: dict[str, Any], file: Path) -> tokenizers.Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{file}: not a tokenizer: {error}") from None
    backend.no_truncation()  # settings that a foreign file may carry and that would cut or pad documents
    backend.no_padding()
    backend.encode_special_tokens = True  # control tokens inside a text are text
    return backend


def _survives(backend: tokenizers.Tokenizer, spelling: Spelling) -> bool:
    """Whether a tricky text comes back byte for byte, alone and after a space, and its tokens' bytes add up."""
    for text in (_PROBE, f" {_PROBE}"):
        found = backend.encode(text, add_special_tokens=False)
        if backend.decode(found.ids) != text:
            return False
        if sum(map(spelling.n_bytes, found.tokens)) != len(text.encode("utf-8")):
            return False
    return True
