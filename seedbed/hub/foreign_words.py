"""What Transformers says: kept off the terminal, errors in one line, and those that it says badly in our words."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path

from seedbed.errors import InputError


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and reports of Transformers on the terminal, its reader of GGUF has one that only the stream can stop:
    what is wrong becomes one line of ours. Warnings are given again behind it, each once and as one line."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    caught: list[warnings.WarningMessage] = []
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings(record=True) as caught:
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        for text, kind in dict.fromkeys((" ".join(str(one.message).split()), one.category) for one in caught):
            warnings.warn(text, kind, stacklevel=4)


def one_line(error: Exception) -> str:
    """Of an error that a library raised: its first line, with those that it announces by a colon."""
    told, *more = [line.strip() for line in (str(error).strip() or repr(error)).splitlines() if line.strip()]
    for line in more:
        if not told.endswith(":"):
            break
        told += f" {line}"
    return told.rstrip(".")


def check_json(file: Path) -> None:
    """Raise InputError unless ``file`` holds a JSON object."""
    try:
        found, problem = json.loads(file.read_text(encoding="utf-8")), "not an object of JSON"
    except (ValueError, RecursionError) as error:
        found, problem = None, f"not JSON ({error})"
    if not isinstance(found, dict):
        raise InputError(f"{file}: {problem}; take the one that the weights came with")
