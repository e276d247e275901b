"""What a model writes, row by row: tokens go in, text comes out, and where it ends is decided here."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from seedbed.data.tokenizer import Tokenizer
from seedbed.serve.options import Options

Finish = Literal["stop", "length", "context"]
"""Why an answer ended: an end token or a stop text; ``max_new_tokens``; the model's longest sequence."""


@dataclass
class Answer:
    """The tokens and the text that continue one prompt; ``finish`` is None while it is being written.

    ``room`` is what the prompt leaves of the model's longest sequence, ``ends`` are the ids that end the answer.
    """

    tokenizer: Tokenizer = field(repr=False)
    options: Options = field(repr=False)
    ends: Collection[int] = field(repr=False)
    room: int = field(repr=False)
    ids: list[int] = field(default_factory=list)
    """With the one that ended it."""
    text: str = ""
    """What is certain: whole characters, and nothing that a stop text may begin with."""
    finish: Finish | None = None

    def __post_init__(self) -> None:
        self._decode = self.tokenizer.decode_stream()
        self._undecoded = 0
        """Ids whose text was given out; those behind it are parts of a character so far."""
        self._held = ""
        """Text that is the beginning of a stop text, or may be."""

    @property
    def limit(self) -> int:
        """Tokens at most."""
        return min(self.options.max_new_tokens, self.room)

    def add(self, token: int) -> str:
        """Take the next token; returns the text that has become certain."""
        self.ids.append(token)
        ended = token in self.ends
        new = "" if ended else self._decode(token)
        if new:
            self._undecoded = len(self.ids)
        if ended:
            self.finish = "stop"
        elif len(self.ids) >= self.limit:
            self.finish = "context" if self.room < self.options.max_new_tokens else "length"
        if self.finish is not None:  # half a character is all there will be of it
            rest = self.ids[self._undecoded : -1 if ended else None]
            new += self.tokenizer.decode(rest) if rest else ""
        return self._give(new)

    def _give(self, new: str) -> str:
        text = self._held + new
        found = [place for stop in self.options.stop if (place := text.find(stop)) >= 0]
        if found:
            text, self._held, self.finish = text[: min(found)], "", "stop"
        elif self.finish is None and self.options.stop:
            kept = len(text) - _begun(text, self.options.stop)
            text, self._held = text[:kept], text[kept:]
        else:
            self._held = ""
        self.text += text
        return text


def _begun(text: str, stops: Collection[str]) -> int:
    """Length of the longest end of ``text`` that one of ``stops`` begins with."""
    longest = min(len(text), max(map(len, stops)) - 1)
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)
