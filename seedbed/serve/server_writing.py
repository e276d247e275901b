"""The continuations that one request asks for, written together: from the engine's ids to text."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence

from seedbed.data.tokenizer import Tokenizer
from seedbed.serve.answer import Answer, Finish
from seedbed.serve.options import Options
from seedbed.serve.server_engine import Engine, Row
from seedbed.serve.server_metrics import Metrics


class WritingFailed(Exception):
    """The engine could not finish a continuation, or not in time."""


class Writing:
    """Rows of the engine and the text that becomes of each; `close` must follow, whatever happens.

    Row number i continues prompt i // (rows a prompt) and draws by its own of ``seeds``.
    """

    def __init__(self, engine: Engine, metrics: Metrics, tokenizer: Tokenizer, deadline: float):
        """``deadline`` is a time of `time.monotonic`."""
        self.answers: list[Answer] = []
        self._engine, self._metrics, self._tokenizer, self._deadline = engine, metrics, tokenizer, deadline
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._rows: list[Row] = []
        self._closed = False

    def begin(
        self,
        prompts: Sequence[list[int]],
        options: Sequence[Options],
        seeds: Sequence[int],
        ends: Collection[int],
    ) -> None:
        """Hand rows to the engine. Raises EngineStopped."""
        for prompt, option, seed in zip(prompts, options, seeds, strict=True):
            self.answers.append(Answer(self._tokenizer, option, ends, option.max_new_tokens))
            self._rows.append(self._engine.submit(prompt, option, seed, ends, self._changed))

    async def parts(self) -> AsyncIterator[tuple[int, str, Finish | None]]:
        """Number of a row, the text that has become certain, and why it ended, if it did; until all have ended.

        Raises WritingFailed, and TimeoutError at the deadline.
        """
        going = set(range(len(self._rows)))
        while going:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                await self._changed.wait()
            self._changed.clear()
            for index in sorted(going):
                row, answer = self._rows[index], self.answers[index]
                text = self._read(row, answer)
                if answer.finish is not None:
                    self._engine.cancel(row)  # a stop text, of which the engine knows nothing
                    going.discard(index)
                elif row.finished:
                    raise WritingFailed(row.error)
                if text or answer.finish is not None:
                    yield index, text, answer.finish
        self._metrics.whole.observe(time.monotonic() - self._began)

    def _read(self, row: Row, answer: Answer) -> str:
        """The text of ids that came since last time."""
        if not answer.ids and row.ids:
            self._metrics.first.observe(time.monotonic() - self._began)
        pieces = []
        for token in row.ids[len(answer.ids) :]:
            pieces.append(answer.add(token))
            self._metrics.new_tokens.inc()
            if answer.finish is not None:
                break
        return "".join(pieces)

    @property
    def new_tokens(self) -> int:
        return sum(len(answer.ids) for answer in self.answers)

    def close(self) -> bool:
        """Stop what is still being written; True where there was any and this is the first call."""
        unfinished = not self._closed and any(answer.finish is None for answer in self.answers)
        for row in self._rows:
            self._engine.cancel(row)
        self._closed = True
        return unfinished
