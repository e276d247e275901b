"""OpenAI's objects: answers, their parts as they come, errors, the list of models."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seedbed.serve.answer import Answer, Finish

REASONS: dict[Finish, str] = {"stop": "stop", "length": "length", "context": "length"}
DONE = "data: [DONE]\n\n"


@dataclass(frozen=True)
class Reply:
    """What all parts of an answer to one request share."""

    name: str
    model: str
    created: int
    """Seconds since 1970."""
    chat: bool

    def whole(self, answers: Sequence[Answer], usage: dict[str, int]) -> dict[str, Any]:
        """The answer in one piece."""
        choices = []
        for index, answer in enumerate(answers):
            said = {"message": {"role": "assistant", "content": answer.text}} if self.chat else {"text": answer.text}
            choices.append(_choice(index, answer.finish) | said)
        return self._head("chat.completion") | {"choices": choices, "usage": usage}

    def opening(self, count: int) -> list[str]:
        """Events before the first token of ``count`` choices."""
        said = {"role": "assistant", "content": ""}
        return [self._event(_choice(index) | {"delta": said}) for index in range(count)] if self.chat else []

    def part(self, index: int, text: str, finish: Finish | None) -> str:
        """The event of what was added to a choice."""
        said = {"delta": {"content": text} if text else {}} if self.chat else {"text": text}
        return self._event(_choice(index, finish) | said)

    def usage(self, usage: dict[str, int]) -> str:
        """The last event, where the client asked for it."""
        return event(self._head("chat.completion.chunk") | {"choices": [], "usage": usage})

    def _event(self, choice: dict[str, Any]) -> str:
        return event(self._head("chat.completion.chunk") | {"choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        kind = kind if self.chat else "text_completion"
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model}


def _choice(index: int, finish: Finish | None = None) -> dict[str, Any]:
    return {"index": index, "logprobs": None, "finish_reason": None if finish is None else REASONS[finish]}


def event(content: dict[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def usage(prompt_tokens: int, new_tokens: int) -> dict[str, int]:
    """Tokens of the prompts, each once, and of the answers, the ones that ended them included."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
    }


def models(name: str, created: int, max_length: int) -> dict[str, Any]:
    """The list of the one model."""
    one = {"id": name, "object": "model", "created": created, "owned_by": "seedbed", "max_model_len": max_length}
    return {"object": "list", "data": [one]}
