"""An OpenAI-compatible server: HTTP around `Service`, nothing else.

The engine is Transformers' continuous batching. Nothing here loads or changes a model.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from seedbed.serve.server_metrics import Counted
from seedbed.serve.server_replies import DONE, Reply, event, models, usage
from seedbed.serve.server_requests import ChatAsked, CompletionAsked, Refusal, read_request
from seedbed.serve.server_service import Service
from seedbed.serve.server_writing import Writing, WritingFailed

CLOSED_REQUEST = 499
"""The status, never received, of a request whose client has gone."""
SLACK = 5.0
"""Seconds behind the time limit that a client has to take the end of a stream."""


def server_app(service: Service, key: str | None = None) -> FastAPI:
    """The application; with a ``key`` all but /health asks for it as a bearer token."""

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        yield
        await asyncio.to_thread(service.engine.stop)

    def authorized(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), (key or "").encode())
        if key is not None and not (right and scheme.lower() == "bearer"):
            raise Refusal(401, "a wrong API key, or none; send `Authorization: Bearer KEY`", code="invalid_api_key")

    app = FastAPI(title="Seedbed", lifespan=running, openapi_url=None)
    app.add_middleware(Counted, metrics=service.metrics)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _no_such_path)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _failed)
    keyed = [Depends(authorized)]

    @app.get("/health")
    async def health() -> Response:
        if service.draining or service.engine.failed is not None:
            return JSONResponse({"status": service.engine.failed or "shutting down"}, 503)
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", dependencies=keyed)
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/models", dependencies=keyed)
    async def list_models() -> dict[str, Any]:
        return models(service.name, service.created, service.max_length)

    @app.get("/v1/models/{name:path}", dependencies=keyed)
    async def one_model(name: str) -> dict[str, Any]:
        if name != service.name:
            raise Refusal(404, f"model {name}: is not served here, {service.name} is", "model", "model_not_found")
        return models(service.name, service.created, service.max_length)["data"][0]

    @app.post("/v1/completions", dependencies=keyed)
    async def complete(request: Request) -> Response:
        return await _serve(service, request, CompletionAsked)

    @app.post("/v1/chat/completions", dependencies=keyed)
    async def chat(request: Request) -> Response:
        return await _serve(service, request, ChatAsked)

    return app


async def _serve(service: Service, request: Request, form: type[CompletionAsked] | type[ChatAsked]) -> Response:
    service.refuse_if_ending()
    deadline = time.monotonic() + service.limits.timeout_s
    try:
        async with asyncio.timeout(service.limits.timeout_s):
            raw = await _body(request, service.limits.max_body)
    except TimeoutError:
        raise Refusal(408, "the request did not come within the time limit") from None
    asked = read_request(raw, form)
    writing, reply, prompt_tokens = await service.begin(asked, deadline)
    if asked.stream:
        with_usage = asked.stream_options.include_usage
        return _Events(service, writing, _events(service, writing, reply, prompt_tokens if with_usage else None))
    return await _whole(service, request, writing, reply, prompt_tokens)


async def _body(request: Request, most: int) -> bytes:
    """The body. Raises Refusal (413) as soon as it is larger than ``most`` bytes, or says that it will be."""
    parts, size = [], int(request.headers.get("content-length", 0))
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            parts.append(part)
            if size > most:
                break
    if size > most:
        raise Refusal(413, f"a body of more than {most:,} bytes")
    return b"".join(parts)


async def _whole(service: Service, request: Request, writing: Writing, reply: Reply, prompt_tokens: int) -> Response:
    """The answer in one piece, once it is written; nothing, where the client goes first."""

    async def write() -> None:
        async for _ in writing.parts():
            pass

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(write()), asyncio.create_task(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            return Response(status_code=CLOSED_REQUEST)
        tasks[0].result()
        return JSONResponse(reply.whole(writing.answers, usage(prompt_tokens, writing.new_tokens)))
    except (TimeoutError, WritingFailed) as error:
        raise _refusal(service, error) from None
    finally:
        for task in tasks:
            task.cancel()
        _close(service, writing)


async def _events(service: Service, writing: Writing, reply: Reply, prompt_tokens: int | None) -> AsyncIterator[str]:
    """Server-sent events; the last ones have the usage where ``prompt_tokens`` are given."""
    for opening in reply.opening(len(writing.answers)):
        yield opening
    try:
        async for part in writing.parts():
            yield reply.part(*part)
    except (TimeoutError, WritingFailed) as error:  # the status was sent long ago
        yield event({"error": _refusal(service, error).error})
        return
    if prompt_tokens is not None:
        yield reply.usage(usage(prompt_tokens, writing.new_tokens))
    yield DONE


class _Events(StreamingResponse):
    """A stream that is closed when its client goes, or takes too long to read."""

    def __init__(self, service: Service, writing: Writing, events: AsyncIterator[str]):
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._service, self._writing = service, writing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._service.limits.timeout_s + SLACK):
                    await super().__call__(scope, receive, send)
        finally:
            _close(self._service, self._writing)


def _close(service: Service, writing: Writing) -> None:
    if writing.close():
        service.metrics.unfinished.inc()


def _refusal(service: Service, error: Exception) -> Refusal:
    """What to tell of a request that was not written to its end."""
    if isinstance(error, TimeoutError):
        return Refusal(504, f"not finished within {service.limits.timeout_s:g} s")
    return Refusal(503 if service.draining else 500, str(error))


async def _refused(_request: Request, error: Any) -> Response:
    headers = {401: {"www-authenticate": "Bearer"}, 413: {"connection": "close"}, 429: {"retry-after": "1"}}
    return JSONResponse({"error": error.error}, error.status, headers.get(error.status))


async def _no_such_path(request: Request, error: Any) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse({"error": Refusal(error.status_code, message).error}, error.status_code, error.headers)


async def _gone(_request: Request, _error: Any) -> Response:
    return Response(status_code=CLOSED_REQUEST)


async def _failed(_request: Request, _error: Any) -> Response:
    """A mistake of ours, whose traceback the server's log has."""
    return JSONResponse({"error": Refusal(500, "the server failed; its log says more").error}, 500)
