"""What may be asked of the server: OpenAI's fields that it has, and one clear line for everything else.

A field that is null counts as absent, as in OpenAI's own clients.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from seedbed.data.tokenizer import SURROGATE
from seedbed.errors import InputError
from seedbed.serve.options import Options


class Refusal(Exception):
    """A request that is not served: an HTTP status and OpenAI's error object."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, kind: str | None = None
    ):
        super().__init__(message)
        self.status = status
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kind or kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.error = {"message": message, "type": kind, "param": param, "code": code}


Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[int], Field(min_length=1)]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class StreamOptions(_Fields):
    include_usage: bool = False


class Asked(_Fields):
    """What completions and chats have in common."""

    model: Text = Field(description="the name that GET /v1/models gives")
    n: int = Field(1, ge=1, description="a whole number from 1 on")
    stream: bool = Field(False, description="true or false")
    stream_options: StreamOptions = Field(StreamOptions(), description='{"include_usage": true}, or false in its place')
    stop: Text | Annotated[list[Text], Field(max_length=16)] = Field(
        [], description="a text, or a list of up to 16 texts, none of them empty"
    )
    temperature: float = Field(1.0, ge=0, le=100, description="a number from 0 to 100; 0 takes the likeliest token")
    top_p: float = Field(1.0, gt=0, le=1, description="a number above 0, up to 1")
    top_k: int | None = Field(None, ge=1, description="a whole number from 1 on")
    min_p: float | None = Field(None, ge=0, le=1, description="a number from 0 to 1")
    repetition_penalty: float = Field(1.0, gt=0, le=100, description="a number above 0, up to 100; 1 for none")
    seed: int | None = Field(None, ge=0, lt=2**63, description="a whole number from 0 on, below 2^63")
    user: Text | None = Field(None, description="a text; it changes nothing")


class CompletionAsked(Asked):
    prompt: Text | Ids | Annotated[list[Text], Field(min_length=1)] | Annotated[list[Ids], Field(min_length=1)] = Field(
        description="a text, token ids, or a list of either, none of them empty"
    )
    max_tokens: int | None = Field(None, ge=1, description="a whole number from 1 on")

    def prompts(self) -> Sequence[str | list[int]]:
        """One by one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        return [self.prompt] if isinstance(self.prompt[0], int) else self.prompt  # pyright: ignore

    def new_tokens(self) -> int | None:
        return self.max_tokens


class Part(_Fields):
    type: Literal["text"]
    text: str


class Message(_Fields):
    role: Literal["system", "user", "assistant"]
    content: str | Annotated[list[Part], Field(min_length=1)]

    def as_template(self) -> dict[str, str]:
        """As a chat template reads it."""
        parts = self.content
        return {"role": self.role, "content": parts if isinstance(parts, str) else "".join(p.text for p in parts)}


class ChatAsked(Asked):
    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description='a list of {"role": "system", "user" or "assistant", "content": a text}, not empty'
    )
    max_tokens: int | None = Field(None, ge=1, description="a whole number from 1 on")
    max_completion_tokens: int | None = Field(
        None, ge=1, description="a whole number from 1 on, or max_tokens in its place, not both"
    )

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatAsked":
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise PydanticCustomError("both", "both")
        return self

    def new_tokens(self) -> int | None:
        return self.max_tokens or self.max_completion_tokens


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Fields of OpenAI that are not served, with the values that ask for nothing."""
_WHY = {"logprobs": "the engine gives no probabilities", "top_logprobs": "the engine gives no probabilities"}

Form = TypeVar("Form", bound=Asked)


def read_request(raw: bytes, form: type[Form]) -> Form:
    """The request in the body ``raw``. Raises Refusal (400) where it is none."""
    body = _object(raw)
    fields = {name: value for name, value in body.items() if value is not None}
    for name, values in NEUTRAL.items():
        if name in fields and name not in form.model_fields and not _is_one_of(fields.pop(name), values):
            why = f" ({_WHY[name]})" if name in _WHY else ""
            raise Refusal(400, f"{name}: is not supported{why}; leave it out", name, "unsupported_parameter")
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise _refused(error, form) from None


def options_of(asked: Asked, max_new_tokens: int) -> Options:
    """How its tokens are drawn. Raises Refusal (400)."""
    stop = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop)
    try:
        return Options(
            max_new_tokens, asked.temperature, asked.top_k, asked.top_p, asked.min_p, asked.repetition_penalty, stop
        )
    except InputError as error:
        raise Refusal(400, str(error)) from None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON in UTF-8: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body is not an object of JSON; give one with model and prompt or messages")
    return body


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """With types, since False == 0."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _refused(error: ValidationError, form: type[Asked]) -> Refusal:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "string_unicode":
        name = str(first["loc"][0]) if first["loc"] else None  # a name of a field that has one has no place
        return Refusal(400, f"{name or 'the name of a field'}: {SURROGATE}", name, "invalid_value")
    name = str(first["loc"][0]) if first["loc"] else "max_completion_tokens"
    known = form.model_fields
    if name not in known:
        return Refusal(400, f"{name}: no such field; known are {', '.join(known)}", name[:100], "unsupported_parameter")
    wanted = f"give {known[name].description}"
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return Refusal(400, f"{name}: is missing; {wanted}", name, "missing_required_parameter")
    return Refusal(400, f"{name}: {wanted}", name, "invalid_value")
