"""A server on a free port, in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seedbed.hub.models import LanguageModel

TEMPLATE = (
    "{% for message in messages %}{{ message.role + ': ' + message.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def make_engine(model: LanguageModel, cache_tokens: int = 1024, batch_tokens: int = 32, rows: int = 8):
    """An engine of a model of ours."""
    from seedbed.hub.transformers_model import to_transformers
    from seedbed.serve.server_engine import Engine

    known = torch.from_numpy(model.tokenizer.known())
    return Engine(to_transformers(model.module), known, model.max_length, cache_tokens, batch_tokens, rows)  # pyright: ignore


def make_service(model: LanguageModel, template: str | None = TEMPLATE, cache_tokens: int = 1024, **limits):
    """A service with small limits."""
    from seedbed.serve.server_service import Limits, Service

    usual = {"max_prompt_tokens": 30, "max_new_tokens": 40, "max_rows": 8, "max_body": 4096, "timeout_s": 60.0}
    engine = make_engine(model, cache_tokens, rows={**usual, **limits}["max_rows"])
    return Service(model, engine, Limits(**{**usual, **limits}), "tiny", template)


@contextmanager
def running(service, key: str | None = None) -> Iterator[str]:
    """The URL of a server of ``service``."""
    import uvicorn

    from seedbed.serve.server import server_app
    from seedbed.serve.server_run import address, listen

    with listen("127.0.0.1", 0) as listening:
        config = uvicorn.Config(server_app(service, key), log_level="error", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address(listening)
        finally:
            server.should_exit = True
            thread.join()
