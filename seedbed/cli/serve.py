"""seedbed serve MODEL"""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.analyze.present import MODEL
from seedbed.cli.generation_options import Template
from seedbed.cli.options import Device, DeviceName, device_of
from seedbed.cli.output import Json, note, print_json
from seedbed.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from seedbed.hub.models import LanguageModel

KEY = "SEEDBED_API_KEY"
"""The environment variable that may hold the API key."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Precision(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def serve(
    path: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL[0].upper() + MODEL[1:])],
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs an API key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="Of the model, for clients.", show_default="its folder's or file's")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the API key that clients must send.", show_default=f"${KEY}, if set")
    ] = None,
    chat_template: Template = "tokenizer",
    device: Device = DeviceName.auto,
    precision: Annotated[Precision, typer.Option(help="Of weights and cache.")] = Precision.float32,
    cache_tokens: Annotated[int, typer.Option(min=1, help="Tokens that the cache holds, of all requests.")] = 8192,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a step reads at most.")] = 512,
    max_rows: Annotated[int, typer.Option(min=1, help="Answers that are written at once; beyond it 429.")] = 32,
    max_prompt_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of one prompt.", show_default="what the model reads")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Of one answer.")] = 1024,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of one request.")] = 2**20,
    timeout: Annotated[float, typer.Option(min=0.001, max=1e6, help="Seconds that a request may take.")] = 300.0,
    grace: Annotated[
        float, typer.Option(min=0.0, max=1e6, help="Seconds that running requests get when the server is stopped.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Serve a model by OpenAI's interface: completions and chats, streamed or not, many at once."""
    key = _key(api_key_file)
    if key is None and host not in LOOPBACK:
        raise InputError(f"--host {host}: can be reached from elsewhere, so it needs an API key: --api-key-file FILE")
    _need_libraries()
    from seedbed.serve.server_run import address, listen

    with listen(host, port) as listening:
        import torch

        from seedbed.data.template import load_template
        from seedbed.hub.models import open_model
        from seedbed.serve.server import server_app
        from seedbed.serve.server_engine import Engine
        from seedbed.serve.server_run import serve as run
        from seedbed.serve.server_service import Limits, Service

        model = open_model(path, device_of(device))
        tokenizer = model.tokenizer
        template = None
        if chat_template != "tokenizer" or tokenizer.chat_template is not None:
            template = load_template(chat_template, tokenizer)
        module = _of_transformers(model).to(getattr(torch, precision.value))  # pyright: ignore[reportCallIssue]
        engine = Engine(module, model.known, model.max_length, cache_tokens, batch_tokens, max_rows)
        limits = Limits(max_prompt_tokens or model.max_length - 1, max_new_tokens, max_rows, max_body, timeout)
        service = Service(model, engine, limits, name or model.name, template)
        facts = {
            "url": address(listening),
            "model": service.name,
            "max_length": service.max_length,
            "cache_tokens": engine.capacity,
            "cache_bytes": engine.cache_bytes,
            "mask_bytes": engine.mask_bytes,
            "chat": template is not None,
            "api_key": key is not None,
        }
        note(
            f"serving {service.name} ({type(module).__name__}, {precision.value}, {model.device.type}) at "
            f"{facts['url']}/v1{'' if template else ', without chats: it has no chat template'}"
            f"{', with an API key' if key else ''}\n"
            f"cache: {engine.capacity:,} tokens in {engine.cache_bytes / 2**20:,.1f} MiB, and "
            f"{engine.mask_bytes / 2**20:,.1f} MiB of masks; a prompt and its answer: {service.max_length:,} tokens"
        )
        if as_json:
            print_json(facts)
        run(server_app(service, key), service, listening, grace)


def _key(file: Path | None) -> str | None:
    """The API key. Raises InputError where the file or the variable has none that a header can carry."""
    where = f"--api-key-file {file}" if file is not None else KEY
    try:
        key = os.environ.get(KEY) if file is None else file.read_text(encoding="utf-8").strip()
    except ValueError as error:
        raise InputError(f"{where}: not a text in UTF-8: {error}") from None
    if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
        raise InputError(f"{where}: give one key of visible ASCII characters without spaces")
    return key


def _need_libraries() -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import transformers  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(f"serving needs {error.name}, which is not installed; pip install 'seedbed[serve]'") from None


def _of_transformers(model: "LanguageModel") -> "PreTrainedModel":
    from seedbed.model import Decoder

    if not isinstance(model.module, Decoder):
        return model.module  # pyright: ignore[reportReturnType]
    from seedbed.hub.transformers_model import to_transformers

    return to_transformers(model.module)
