"""What the server counts, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seedbed.serve.server_engine import Engine

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/metrics")
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters, and gauges that read the engine whenever they are asked for."""

    def __init__(self, engine: Engine):
        self.registry = CollectorRegistry()
        put = {"registry": self.registry, "namespace": "seedbed"}
        self.requests = Counter("requests", "Answers by path and HTTP status.", ["path", "status"], **put)
        self.unfinished = Counter(
            "unfinished", "Requests that ended before their answers: client gone, out of time, engine failed.", **put
        )
        self.prompt_tokens = Counter("prompt_tokens", "Tokens of prompts.", **put)
        self.new_tokens = Counter("new_tokens", "Tokens that were written.", **put)
        self.first = Histogram("first_token_seconds", "From request to first token.", buckets=_SECONDS, **put)
        self.whole = Histogram("request_seconds", "From request to last token.", buckets=_SECONDS, **put)
        Gauge("rows", "Continuations that are written or wait.", **put).set_function(lambda: engine.written)
        Gauge("cache_used", "Share of the cache in use, prompts kept for later ones included.", **put).set_function(
            engine.used
        )
        Gauge("up", "1 while the engine takes requests.", **put).set_function(lambda: engine.failed is None)


class Counted:
    """Counts answers by path and status around an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"] if scope["path"] in PATHS else "other"
                self._metrics.requests.labels(path, message["status"]).inc()
            await send(message)

        await self._app(scope, receive, counting)
