"""Byte-level BPE: training, and one face for our tokenizers and foreign ones.

A tokenizer is a folder with `tokenizer.json` and `tokenizer_config.json`, as Transformers' AutoTokenizer reads it.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from seedbed.data.progress import spinner
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, require_replaceable

BOS, EOS = "<|bos|>", "<|eos|>"
SMALLEST_VOCABULARY = 256 + 2  # all bytes and the two control tokens
MAX_PIECE = 64
"""Characters of the longest piece that merges can fill. Merging inside one piece costs more than linear time, so runs
without a break ("aaaa...", minified code, Chinese without punctuation) are cut there. Decoding joins them again."""

_FILES = ("tokenizer.json", "tokenizer_config.json", "training.json")
_PROBE = "hello !  it's\t\r\n\0 x\u00a0ab \u00e9 e\u0301 \u4e2d\u6587 \U0001f600 <|x|> 1234 A\n\n"


def _pieces(longest: int) -> str:
    """The split before merging: contractions, words, digits by three, punctuation, line ends, spaces (as cl100k).

    Every quantifier has an upper bound. A piece holds letters with one leading space or sign, never letters and
    digits together.
    """
    n = f"{{1,{longest}}}"
    n0 = f"{{0,{longest}}}"
    return (
        r"(?i:'[sdmt]|'ll|'ve|'re)"
        rf"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}{n}"
        r"|\p{N}{1,3}"
        rf"| ?[^\s\p{{L}}\p{{N}}]{n}[\r\n]{n0}"
        rf"|\s{n0}[\r\n]{n}"
        rf"|\s{n}(?!\S)|\s{n}"
    )


class Tokenizer:
    """A byte-level BPE tokenizer in a folder; control tokens are added by the caller, never parsed from text."""

    def __init__(self, folder: Path, backend: tokenizers.Tokenizer, bos: str, eos: str):
        self.folder = folder
        self._backend = backend
        self._tokens = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self._tokens.values()) + 1
        """One more than the largest id."""
        self.bos_id = self._tokens[bos]
        self.eos_id = self._tokens[eos]
        self.hash = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without control tokens; "<|eos|>" inside a text stays text. Lossless.

        Raises InputError for a text with lone surrogates, which has no UTF-8 form.
        """
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:
            if all(isinstance(text, str) for text in texts):
                raise InputError("a text holds a lone surrogate, which UTF-8 cannot express; replace it") from None
            raise
        return [encoding.ids for encoding in encodings]

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without control tokens."""
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; control tokens are left out, bytes that are not UTF-8 become U+FFFD."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=True)

    def token_bytes(self) -> np.ndarray:
        """Raw bytes that each id stands for: [V] uint16, 0 for control tokens and unused ids.

        Summed over a document's tokens it is the length of its UTF-8 form.
        """
        lengths = np.zeros(self.vocab_size, dtype=np.uint16)
        for token, i in self._tokens.items():
            lengths[i] = len(token)  # the byte-level alphabet has one character a byte
        for i, added in self._backend.get_added_tokens_decoder().items():
            lengths[i] = 0 if added.special else len(added.content.encode("utf-8"))
        return lengths

    def save(self, folder: str | Path) -> None:
        """Copy the tokenizer's files into ``folder``, byte for byte."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, Path(folder) / name)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Read a tokenizer folder, ours or a foreign byte-level one.

    Raises InputError when a file is missing or damaged, when there is no begin- or end-of-text token, or when text
    does not survive the round trip byte for byte (a normalizer, a prefix space, a vocabulary of words).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make one with `seedbed tokenizer train`")
    for name in _FILES[:2]:
        if not (folder / name).is_file():
            raise InputError(f"{folder}: not a tokenizer folder ({name} is missing)")
    config = _read_config(folder / "tokenizer_config.json")
    try:
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{folder / 'tokenizer.json'}: not a tokenizer: {error}") from None
    names = []
    for key in ("bos_token", "eos_token"):
        token = config.get(key)
        token = token.get("content") if isinstance(token, dict) else token
        if not isinstance(token, str) or backend.token_to_id(token) is None:
            raise InputError(f"{folder / 'tokenizer_config.json'}: {key} is {token!r}; name a token of the vocabulary")
        names.append(token)
    backend.no_truncation()  # settings that a foreign file may carry and that would cut or pad documents
    backend.no_padding()
    backend.encode_special_tokens = True  # control tokens inside a text are text
    tokenizer = Tokenizer(folder, backend, *names)
    ids = tokenizer.encode(_PROBE)
    if tokenizer.decode(ids) != _PROBE or tokenizer.token_bytes()[ids].sum() != len(_PROBE.encode("utf-8")):
        raise InputError(f"{folder}: not a lossless byte-level tokenizer; text does not survive encoding and decoding")
    return tokenizer


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a JSON object")
    return config


def train_tokenizer(texts: Iterable[str], vocab_size: int, out: str | Path) -> Tokenizer:
    """Train byte-level BPE on ``texts`` and put it, whole, into the folder ``out``.

    Ids 0 and 1 are `<|bos|>` and `<|eos|>`, then the 256 bytes, then merges of pairs seen at least twice. The file
    depends on the texts alone, not on hash seeds or threads. Where the texts run out of pairs the vocabulary is
    smaller than asked: a warning says so, and `training.json` records both sizes. A tokenizer that is already there
    is replaced. Raises InputError when ``vocab_size`` is below 258, or when ``out`` holds anything else.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise InputError(f"vocabulary of {vocab_size}: needs at least {SMALLEST_VOCABULARY} (256 bytes, bos and eos)")
    require_replaceable(out, "tokenizer.json")
    backend = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_pieces(MAX_PIECE)), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    # assigned, not passed: the library's only interface
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,  # the library's bar writes to stdout
    )
    seen = {"documents": 0, "bytes": 0}
    with spinner("training the tokenizer:") as show:
        backend.train_from_iterator(_counted(texts, seen, show), trainer)
        show(_progress(seen))
    true_size = backend.get_vocab_size()
    training = {"format_version": 1, "requested_vocab_size": vocab_size, "vocab_size": true_size, **seen}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
    }
    with atomic_folder(out) as folder:
        # as text: the library's own save hides which error of the system it met
        (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        (folder / "training.json").write_text(json.dumps(training, indent=1), encoding="utf-8")
    if true_size != vocab_size:
        warnings.warn(
            f"the vocabulary has {true_size} tokens, not the {vocab_size} asked for: "
            "the texts hold no further pair that occurs twice",
            stacklevel=2,
        )
    return load_tokenizer(out)


def _counted(texts: Iterable[str], seen: dict[str, int], show: Callable[[str], None]) -> Iterator[str]:
    for text in texts:
        seen["documents"] += 1
        seen["bytes"] += len(text.encode("utf-8"))
        if seen["documents"] % 100 == 0:
            show(_progress(seen))
        yield text
    show(f"{_progress(seen)}; merging")


def _progress(seen: dict[str, int]) -> str:
    return f"{seen['documents']:,} documents, {seen['bytes']:,} bytes"
