"""Training of byte-level BPE."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from seedbed.data.progress import spinner
from seedbed.data.sampling import Sample
from seedbed.data.template import check_template
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.data.tokenizer_config import MAX_PADDING
from seedbed.data.tokenizer_json import MAX_VOCABULARY
from seedbed.errors import InputError
from seedbed.files.atomic import atomic_folder, require_replaceable

BOS, EOS = "<|bos|>", "<|eos|>"
SMALLEST_VOCABULARY = 256 + 2  # all bytes and the two control tokens
MAX_PIECE = 64
"""Characters of the longest piece that merges can fill. Merging inside one piece costs more than linear time, so runs
without a break ("aaaa...", minified code, Chinese without punctuation) are cut there. Decoding joins them again."""
MAX_BYTES = 50_000_000
"""Training takes about 100 bytes of memory a byte of Chinese text, whose pieces hardly repeat, and 10 of English."""
MAX_DOCUMENT_BYTES = 1_000_000
"""So that one long document does not decide the merges."""


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    out: str | Path,
    *,
    special_tokens: Sequence[str] = (),
    chat_template: str | None = None,
    pad_to: int = 1,
    max_bytes: int = MAX_BYTES,
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
) -> Tokenizer:
    """Train byte-level BPE on a bounded sample of ``texts`` and put it, whole, into the folder ``out``.

    Ids 0 and 1 are `<|bos|>` and `<|eos|>`, then ``special_tokens``, the 256 bytes, and merges of pairs seen at least
    twice. The file depends on the set of texts and on these arguments, not on their order, hash seeds or threads.
    `training.json` records what was read and what the sample (see Sample) left out. Where the texts run out of
    pairs the vocabulary is smaller than asked: a warning says so, and both sizes are recorded. Models take the size
    rounded up to a multiple of ``pad_to``; no token has the ids above.

    ``chat_template`` is Jinja text, kept with the tokenizer. A tokenizer that is already there is replaced. Raises
    InputError when an argument is out of range, when the template is not valid or writes control tokens that are not
    asked for, or when ``out`` holds anything else.
    """
    control = [BOS, EOS, *special_tokens]
    smallest = SMALLEST_VOCABULARY + len(special_tokens)
    if vocab_size < smallest:
        more = f" and {len(special_tokens)} special tokens" if special_tokens else ""
        raise InputError(f"vocabulary of {vocab_size}: needs at least {smallest} (256 bytes, bos and eos{more})")
    for name, value, limit in (("vocab_size", vocab_size, MAX_VOCABULARY), ("pad_to", pad_to, MAX_PADDING)):
        if value > limit:
            raise InputError(f"{name}={value}: must be at most {limit}")
    for name, value in {"pad_to": pad_to, "max_bytes": max_bytes, "max_document_bytes": max_document_bytes}.items():
        if value < 1:
            raise InputError(f"{name}={value}: must be at least 1")
    backend = _untrained()
    _check_special(control, backend)
    if chat_template is not None:
        check_template(chat_template, "chat_template", control.__contains__)
    require_replaceable(out, "tokenizer.json")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=control,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,  # the library's bar writes to stdout
    )
    with spinner("training the tokenizer:") as show:
        sample = Sample(texts, max_bytes, max_document_bytes, show)
        backend.train_from_iterator(_told(sample, show), trainer)
        show(str(sample.counts))
    true_size = backend.get_vocab_size()
    sizes = {"requested_vocab_size": vocab_size, "vocab_size": true_size}
    training = {"format_version": 1, **sizes, "max_bytes": max_bytes, "max_document_bytes": max_document_bytes}
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "padded_vocab_size": -(-true_size // pad_to) * pad_to,
    }
    if special_tokens:
        config["extra_special_tokens"] = list(special_tokens)
    if chat_template is not None:
        config["chat_template"] = chat_template
    with atomic_folder(out) as folder:
        # as text: the library's own save hides which error of the system it met
        (folder / "tokenizer.json").write_text(backend.to_str(pretty=True), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        (folder / "training.json").write_text(json.dumps({**training, **asdict(sample.counts)}, indent=1), "utf-8")
    if true_size != vocab_size:
        warnings.warn(
            f"the vocabulary has {true_size} tokens, not the {vocab_size} asked for: "
            "the texts hold no further pair that occurs twice",
            stacklevel=2,
        )
    return load_tokenizer(out)


def _untrained() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_pieces(MAX_PIECE)), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    # assigned, not passed: the library's only interface
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    return backend


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


def _check_special(tokens: list[str], backend: tokenizers.Tokenizer) -> None:
    """Raise InputError unless the tokens differ, and differ from all that bytes may be merged into.

    Merges stay inside pieces, so no text gives a token that is split into several.
    """
    for index, token in enumerate(tokens):
        if token in tokens[:index]:
            raise InputError(f"special token {token!r}: given twice, or one of {BOS} and {EOS}, which are always there")
        try:
            text = backend.decoder.decode([token])  # pyright: ignore[reportOptionalMemberAccess]
            pieces = backend.pre_tokenizer.pre_tokenize_str(text)  # pyright: ignore[reportOptionalMemberAccess]
        except UnicodeEncodeError:
            raise InputError(f"special token {token!r}: not UTF-8") from None
        if len(pieces) < 2 or "\ufffd" in text:
            raise InputError(f"special token {token!r}: text may be merged into it; give one like '<|name|>'")


def _told(sample: Sample, show: Callable[[str], None]) -> Iterator[str]:
    yield from sample.take()
    show(f"{sample.counts}; merging")
