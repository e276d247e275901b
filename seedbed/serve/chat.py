"""A conversation with a model: what was said, what still fits, and the next answer."""

from collections.abc import Callable
from dataclasses import dataclass, field

from seedbed.data.chat import Chat
from seedbed.errors import InputError
from seedbed.hub.generating import end_of_turn
from seedbed.hub.models import LanguageModel
from seedbed.serve.answer import Answer
from seedbed.serve.generate import end_ids, generate
from seedbed.serve.options import Options
from seedbed.serve.prompts import chat_ids, check_ids, text_ids

ROOM = 8
"""Of what the model reads, one part in so many is kept for an answer at least, or ``max_new_tokens`` if fewer."""


@dataclass
class Talk:
    """Turns so far. ``chat`` is None for plain completion: then all turns are one text that goes on."""

    model: LanguageModel
    chat: Chat | None
    options: Options
    system: str | None = None
    seed: int = 0
    """Of the next answer; each takes the next one."""
    turns: list[dict[str, str]] = field(default_factory=list)

    def reset(self) -> None:
        """Forget what was said."""
        self.turns = []

    def reply(self, text: str, heard: Callable[[str], None], forgot: Callable[[int], None]) -> Answer:
        """Answer ``text``, giving the answer's text to ``heard`` as it comes. The oldest turns are forgotten where the
        model could not read all and answer; ``forgot`` is told how many. An answer that is interrupted
        (KeyboardInterrupt) stays as far as it was heard.

        Raises InputError where ``text`` alone is too long; then nothing has changed.
        """
        turns = [*self.turns, {"role": "user", "content": text}]
        least = min(self.options.max_new_tokens, self.model.max_length // ROOM)
        kept = turns
        while len(ids := self._ids(kept)) > self.model.max_length - max(least, 1):
            following = kept[2:] if self.chat is not None else kept[1:]
            if not following:
                raise InputError(
                    f"{len(ids)} tokens with what goes before, {self.model.name} reads at most "
                    f"{self.model.max_length} with the answer; shorten it"
                )
            kept = following
        if len(kept) < len(turns):
            forgot(len(turns) - len(kept))
        said: list[str] = []

        def hear(_row: int, part: str) -> None:
            said.append(part)
            heard(part)

        ends = end_ids(self.model)
        if self.chat is not None:
            ends.add(end_of_turn(self.model.tokenizer, self.chat))
        try:
            (answer,) = generate(self.model, [ids], self.options, [self.seed], ends, heard=hear)
        finally:
            self.seed += 1
            self.turns = [*kept, {"role": "assistant", "content": "".join(said)}]
        return answer

    def _ids(self, turns: list[dict[str, str]]) -> list[int]:
        if self.chat is None:
            return text_ids(self.model.tokenizer, "".join(turn["content"] for turn in turns))
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        ids = chat_ids(self.model.tokenizer, self.chat, [*first, *turns], "chat")
        check_ids(self.model, ids, "chat")
        return ids
