"""From a request to the rows that the engine writes for it: limits, prompts, seeds. No HTTP in here."""

import asyncio
import secrets
import time
import uuid
from dataclasses import dataclass

from seedbed.data.chat import Chat
from seedbed.errors import InputError
from seedbed.hub.generating import end_of_turn
from seedbed.hub.models import LanguageModel
from seedbed.serve.generate import end_ids
from seedbed.serve.prompts import chat_ids, check_ids, text_ids
from seedbed.serve.server_engine import Engine, EngineStopped
from seedbed.serve.server_metrics import Metrics
from seedbed.serve.server_replies import Reply
from seedbed.serve.server_requests import ChatAsked, CompletionAsked, Refusal, options_of
from seedbed.serve.server_writing import Writing

NEW_TOKENS = 16
"""Of a completion that names no number, as OpenAI has it; a chat gets what there is room for."""


@dataclass(frozen=True)
class Limits:
    """What one request, and all together, may have."""

    max_prompt_tokens: int
    max_new_tokens: int
    max_rows: int
    """Continuations at once, of all requests."""
    max_body: int
    """Bytes."""
    timeout_s: float


class Service:
    """A model that is served. While ``draining``, new requests are refused and those that run come to their end."""

    def __init__(self, model: LanguageModel, engine: Engine, limits: Limits, name: str, template: str | None = None):
        """``template`` is the Jinja text of chats; without it there are none."""
        self.model, self.engine, self.limits, self.name = model, engine, limits, name
        self.metrics = Metrics(engine)
        self.created = int(time.time())
        self.draining = False
        self.max_length = min(model.max_length, engine.capacity)
        """Tokens of a prompt and its answer."""
        tokenizer = model.tokenizer
        self._chat = None if template is None else Chat(template, tokenizer)
        self._ends = end_ids(model)
        self._chat_ends = self._ends if self._chat is None else {*self._ends, end_of_turn(tokenizer, self._chat)}

    def refuse_if_ending(self) -> None:
        """Raises Refusal: 503 while the server shuts down, 500 once the engine has failed."""
        if self.draining:
            raise Refusal(503, "the server is shutting down")
        if self.engine.failed is not None:
            raise Refusal(500, self.engine.failed)

    async def begin(self, asked: CompletionAsked | ChatAsked, deadline: float) -> tuple[Writing, Reply, int]:
        """Have ``asked`` written: the continuations, which are to be closed, the form of the reply, and the tokens of
        the prompts. Raises Refusal."""
        if asked.model != self.name:
            raise Refusal(404, f"model {asked.model}: is not served here, {self.name} is", "model", "model_not_found")
        prompts = await asyncio.to_thread(self._prompts, asked)  # long texts take their time
        rows = [prompt for prompt in prompts for _ in range(asked.n)]
        options = [options_of(asked, self._new_tokens(asked, len(prompt))) for prompt in rows]
        seed = secrets.randbits(62) if asked.seed is None else asked.seed
        chat = isinstance(asked, ChatAsked)
        writing = Writing(self.engine, self.metrics, self.model.tokenizer, deadline)
        self._admit(len(rows))  # nothing is awaited from here to the engine
        try:
            writing.begin(rows, options, range(seed, seed + len(rows)), self._chat_ends if chat else self._ends)
        except EngineStopped as error:
            writing.close()
            raise Refusal(500, str(error)) from None
        prompt_tokens = sum(map(len, prompts))
        self.metrics.prompt_tokens.inc(prompt_tokens)
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        return writing, Reply(name, self.name, int(time.time()), chat), prompt_tokens

    def _admit(self, rows: int) -> None:
        self.refuse_if_ending()
        most, there = self.limits.max_rows, self.engine.written
        if rows > most:
            raise Refusal(400, f"{rows} answers (prompts x n): the server writes at most {most} at once", "n")
        if there + rows > most:
            raise Refusal(429, f"{there} answers are being written, of at most {most} at once; try again later")

    def _prompts(self, asked: CompletionAsked | ChatAsked) -> list[list[int]]:
        """Ids of each prompt. Raises Refusal (400)."""
        tokenizer, param = self.model.tokenizer, "messages" if isinstance(asked, ChatAsked) else "prompt"
        try:
            if isinstance(asked, ChatAsked):
                if self._chat is None:
                    raise Refusal(400, f"{self.name} has no chat template; use /v1/completions", param)
                messages = [message.as_template() for message in asked.messages]
                prompts = [chat_ids(tokenizer, self._chat, messages, param)]
            else:
                prompts = [text_ids(tokenizer, one) if isinstance(one, str) else one for one in asked.prompts()]
            for prompt in prompts:
                check_ids(self.model, prompt, param)
            return prompts
        except InputError as error:
            raise Refusal(400, str(error), param) from None

    def _new_tokens(self, asked: CompletionAsked | ChatAsked, prompt_tokens: int) -> int:
        """How many tokens to write at most. Raises Refusal (400) where a limit would be passed."""
        too_long, limits, wanted = "context_length_exceeded", self.limits, asked.new_tokens()
        if prompt_tokens > limits.max_prompt_tokens:
            message = f"a prompt of {prompt_tokens} tokens; the server takes {limits.max_prompt_tokens}"
            raise Refusal(400, message, code=too_long)
        room = self.max_length - prompt_tokens
        if room < 1 or (wanted or 1) > room:
            message = f"{prompt_tokens} tokens and {wanted or 1} new ones; together {self.max_length} are the most"
            raise Refusal(400, message, code=too_long)
        if wanted is not None and wanted > limits.max_new_tokens:
            raise Refusal(400, f"max_tokens: {wanted}; the server writes at most {limits.max_new_tokens}", "max_tokens")
        usual = limits.max_new_tokens if isinstance(asked, ChatAsked) else min(NEW_TOKENS, limits.max_new_tokens)
        return min(usual, room) if wanted is None else wanted
