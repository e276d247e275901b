"""Filters: which documents are rejected, and for what reason."""

import inspect
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from seedbed.config.options import suggest
from seedbed.data.spec import Filters, LanguageFilter, QualityFilter, RepetitionFilter
from seedbed.errors import InputError

Check = Callable[[str], str | None]
"""From a text to the reason for which it is rejected, a fixed phrase that is counted; None where it is kept."""


def make_filter(filters: Filters) -> Check:
    """All filters that are set, as one: the first reason in the order of the fields of ``filters``.

    Raises InputError for a filter of datatrove that is unknown, cannot be used on a text alone, lacks a library or does
    not take its arguments.
    """
    checks: list[Check] = []
    if filters.char_repetition:
        checks.append(_char_repetition(filters.char_repetition))
    if filters.word_repetition:
        checks.append(_word_repetition(filters.word_repetition))
    if filters.language:
        checks.append(_language(filters.language))
    if filters.quality:
        checks.append(_quality(filters.quality))
    checks += [_datatrove(name, arguments) for name, arguments in filters.datatrove.items()]

    def check(text: str) -> str | None:
        return next((reason for one in checks if (reason := one(text))), None)

    return check


_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HAN_CHAR = re.compile(f"[{_HAN}]")
_OTHER_WORDS = re.compile(rf"[^\W{_HAN}]+")  # letters, digits and _ in a row
_WORDS = re.compile(f"{_HAN_CHAR.pattern}|{_OTHER_WORDS.pattern}")


def _char_repetition(spec: RepetitionFilter) -> Check:
    def check(text: str) -> str | None:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")  # [characters]
        return "characters repeat" if repeated_share(codes, spec.n) > spec.max_share else None

    return check


def _word_repetition(spec: RepetitionFilter) -> Check:
    def check(text: str) -> str | None:
        numbers: dict[str, int] = {}
        words = [numbers.setdefault(word, len(numbers)) for word in _WORDS.findall(text)]
        return "words repeat" if repeated_share(np.array(words, dtype=np.uint32), spec.n) > spec.max_share else None

    return check


def repeated_share(items: np.ndarray, n: int) -> float:
    """Share of ``items`` that lie in an ``n``-gram which occurred before; 0 where there are fewer than n + 1.

    Characters or words: [m] uint32, m below 2^32. An n-gram counts from its second occurrence on, which may overlap the
    first, and an item is counted once, however many repeated n-grams it lies in. So "abcabc" has a share of 1/2 for n
    of 1 to 3, and "aaaa…" nearly 1. n-grams are compared by a hash of 64 bits less those of m, so that one sort of
    (hash, place) tells the later occurrences: m·log m, and hardly more for a larger n.
    """
    starts = len(items) - n + 1
    if starts < 2:
        return 0.0
    place_bits = np.uint64(int(starts).bit_length())
    place = (np.uint64(1) << place_bits) - np.uint64(1)
    ordered = np.sort((_hash(items, n) & ~place) | np.arange(starts, dtype=np.uint64))  # [starts]
    later = ordered[1:][(ordered[1:] ^ ordered[:-1]) <= place] & place  # places of the occurrences after a first one
    edges = np.zeros(len(items) + 1, dtype=np.int64)  # +1 where a repeated n-gram starts, -1 after it
    edges[later] += 1
    edges[later + np.uint64(n)] -= 1
    return float(np.count_nonzero(np.cumsum(edges))) / len(items)


def _hash(items: np.ndarray, n: int) -> np.ndarray:
    """Hashes of all n-grams, [m - n + 1] uint64, high bits best. Those of length 2k are made from pairs of length k."""
    hashes = _mix(items.astype(np.uint64))
    length = 1
    while length < n:
        step = min(length, n - length)  # the last pair overlaps
        hashes = _mix(hashes[:-step] * np.uint64(0x9E3779B97F4A7C15) + hashes[step:])
        length += step
    return hashes


def _mix(values: np.ndarray) -> np.ndarray:
    """A bijection of uint64 after which every bit depends on all (the finalizer of MurmurHash3)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


def _language(spec: LanguageFilter) -> Check:
    def check(text: str) -> str | None:
        kinds = _kinds(text)
        letters = kinds["latin"] + kinds["han"] + kinds["other letter"]
        wanted = sum(kinds[script] for script in set(spec.scripts))
        return "letters of other scripts" if wanted < spec.min_share * max(letters, 1) else None

    return check


def _quality(spec: QualityFilter) -> Check:
    def check(text: str) -> str | None:
        kinds = _kinds(text)
        visible = kinds.total() - kinds["space"]
        if spec.max_symbol_share is not None and kinds["symbol"] > spec.max_symbol_share * visible:
            return "too many symbols"
        if spec.max_digit_share is not None and kinds["digit"] > spec.max_digit_share * visible:
            return "too many digits"
        if spec.min_mean_word is not None or spec.max_mean_word is not None:
            words = _OTHER_WORDS.findall(text)
            mean = sum(map(len, words)) / max(len(words), 1)
            mostly_han = kinds["han"] >= len(words)
            if spec.min_mean_word is not None and not mostly_han and mean < spec.min_mean_word:
                return "words too short"
            if spec.max_mean_word is not None and not mostly_han and mean > spec.max_mean_word:
                return "words too long"
        if spec.min_ended_share is not None:
            lines = [line.rstrip() for line in text.split("\n") if not line.isspace()]
            if sum(line.endswith(_ENDS) for line in lines) < spec.min_ended_share * len(lines):
                return "lines end no sentence"
        return None

    return check


_ENDS = (*".!?…。！？．", *(end + close for end in ".!?…。！？．" for close in "\"'”’」』)）"))


def _kinds(text: str) -> Counter[str]:
    """How many characters of each kind."""
    kinds: Counter[str] = Counter()
    for char, times in Counter(text).items():
        kinds[_kind(char)] += times
    return kinds


@cache
def _kind(char: str) -> str:
    category = unicodedata.category(char)[0]
    if char.isspace():
        return "space"
    if _HAN_CHAR.match(char):
        return "han"
    if category == "L":
        return "latin" if "LATIN" in unicodedata.name(char, "") else "other letter"
    return {"M": "mark", "N": "digit"}.get(category, "symbol")


# filters that cannot be asked about a text alone, or whose answer depends on what they were asked before
_UNFIT = {
    "LambdaFilter": "takes a function of Python",
    "SamplerFilter": "draws by chance; use mixture for a share of the documents",
    "URLFilter": "looks at the address of a document, not at its text",
}
_UNFIT_ARGUMENTS = ("exclusion_writer", "batch_size", "keep_fraction", "seed", "save_labels_in_metadata", "label_only")
# passes the cheap rules of each filter, so that the words and sentences behind them are looked at too
_PROBE = """The library opens at nine o'clock and closes at six in the evening.
Visitors who have lost their card should ask for help at the desk.
Most of the books on the second floor were written before the war.
Some of them have to be read in the room with the large windows.
Nobody knows with certainty who planted the old tree in the yard.
"""


def _datatrove(name: str, arguments: dict[str, Any]) -> Check:
    """A filter of datatrove as a check. It is tried on a few sentences, since some load a library at first use."""
    where = f"filters.datatrove.{name}"
    try:
        from datatrove.data import Document
        from datatrove.pipeline import filters as module
        from datatrove.pipeline.filters.base_filter import BaseFilter, get_filter_result
        from loguru import logger
    except ImportError:
        raise InputError(f"{where}: datatrove is not installed; pip install 'seedbed[scale]'") from None
    logger.disable("datatrove")
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    known = sorted(key for key, value in classes.items() if issubclass(value, BaseFilter) and key not in _UNFIT)
    if name in _UNFIT:
        raise InputError(f"{where}: {_UNFIT[name]}")
    if name not in known:
        raise InputError(f"{where}: unknown filter; {suggest(name, known)} ({' | '.join(known)})")
    options = [key for key in inspect.signature(classes[name]).parameters if key not in _UNFIT_ARGUMENTS]
    for argument in arguments:
        if argument not in options:
            raise InputError(f"{where}.{argument}: unknown argument; {suggest(argument, options)}")

    def check(text: str) -> str | None:
        try:
            kept, reason = get_filter_result(step.filter(Document(text=text, id="")))
        except ImportError as error:
            raise InputError(f"{where}: {_one_line(error)}") from None
        except Exception as error:  # whatever their code raises
            raise InputError(
                f"{where}: {type(error).__name__} on the text {text[:40]!r}: {_one_line(error)}"
            ) from error
        return None if kept else f"{name}: {reason}" if reason else name

    try:
        step = classes[name](
            **{key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
        )
    except Exception as error:
        raise InputError(f"{where}: {_one_line(error)}") from error
    check(_PROBE)
    return check


def _one_line(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"needs a library that is not installed; pip install {error.name}"
    return " ".join(str(error).split()) or type(error).__name__
