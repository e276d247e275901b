"""Filters: which documents are rejected, and for what reason."""

import inspect
from collections.abc import Callable
from itertools import chain
from typing import Any

from seedbed.config.options import suggest
from seedbed.data.characters import Characters, repeated_share
from seedbed.data.sections import Filters, LanguageFilter, QualityFilter, RepetitionFilter
from seedbed.errors import InputError


def make_filter(filters: Filters) -> Callable[[str], str | None]:
    """All filters that are set, as one: from a text to the reason for which it is rejected, None where it is kept.

    A reason is a fixed phrase, to be counted; of several, it is the first in the order of the fields of ``filters``.
    Raises InputError for a filter of datatrove that is unknown, cannot be used on a text alone, lacks a library or does
    not take its arguments.
    """
    own: list[Callable[[Characters], str | None]] = []
    if filters.char_repetition:
        own.append(_char_repetition(filters.char_repetition))
    if filters.word_repetition:
        own.append(_word_repetition(filters.word_repetition))
    if filters.language:
        own.append(_language(filters.language))
    if filters.quality:
        own.append(_quality(filters.quality))
    theirs = [_datatrove(name, arguments) for name, arguments in filters.datatrove.items()]

    def check(text: str) -> str | None:
        characters = Characters(text)
        reasons = chain((one(characters) for one in own), (one(text) for one in theirs))
        return next((reason for reason in reasons if reason), None)

    return check


def _char_repetition(spec: RepetitionFilter) -> Callable[[Characters], str | None]:
    def check(characters: Characters) -> str | None:
        return "characters repeat" if repeated_share(characters.codes, spec.n) > spec.max_share else None

    return check


def _word_repetition(spec: RepetitionFilter) -> Callable[[Characters], str | None]:
    def check(characters: Characters) -> str | None:
        return "words repeat" if repeated_share(characters.words(), spec.n) > spec.max_share else None

    return check


def _language(spec: LanguageFilter) -> Callable[[Characters], str | None]:
    def check(characters: Characters) -> str | None:
        counts = characters.counts
        wanted = sum(counts[script] for script in set(spec.scripts))
        letters = counts["latin"] + counts["han"] + counts["other"]
        return "letters of other scripts" if wanted < spec.min_share * max(letters, 1) else None

    return check


def _quality(spec: QualityFilter) -> Callable[[Characters], str | None]:
    def check(characters: Characters) -> str | None:
        counts = characters.counts
        visible = sum(counts.values()) - counts["space"]
        if spec.max_symbol_share is not None and counts["symbol"] > spec.max_symbol_share * visible:
            return "too many symbols"
        if spec.max_digit_share is not None and counts["digit"] > spec.max_digit_share * visible:
            return "too many digits"
        if spec.min_mean_word is not None or spec.max_mean_word is not None:
            words = len(characters.word_starts) - counts["han"]
            length = counts["latin"] + counts["other"] + counts["mark"] + counts["digit"]
            if words > counts["han"]:
                if spec.min_mean_word is not None and length < spec.min_mean_word * words:
                    return "words too short"
                if spec.max_mean_word is not None and length > spec.max_mean_word * words:
                    return "words too long"
        if spec.min_ended_share is not None:
            lines = [line.rstrip() for line in characters.text.split("\n") if line.strip()]
            if sum(line.endswith(_ENDS) for line in lines) < spec.min_ended_share * len(lines):
                return "lines end no sentence"
        return None

    return check


_ENDS = (*".!?…。！？．", *(end + close for end in ".!?…。！？．" for close in "\"'”’」』)）"))


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


def _datatrove(name: str, arguments: dict[str, Any]) -> Callable[[str], str | None]:
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
