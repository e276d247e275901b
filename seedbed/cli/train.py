"""seedbed train CONFIG, seedbed generate RUN"""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.output import Json, Overrides, print_json
from seedbed.errors import InputError
from seedbed.parallel.launched import launched

if TYPE_CHECKING:
    from seedbed.config import Config


def load_config(path: str, overrides: list[str]) -> "Config":
    """The configuration, on each rank; an error of one ends all of them."""
    from seedbed.config import Config

    _, size = launched()
    try:
        return Config.load(path, overrides)
    except InputError as error:
        if size == 1:
            raise
        from seedbed.parallel.world import fail_everywhere

        fail_everywhere(error)


def train(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove the run that is there and start over.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model; the same command on an unfinished run resumes it."""
    config = load_config(path, overrides or [])  # before anything heavy is imported
    from seedbed.api import fit

    run = fit(config, fresh=fresh)
    if launched()[0] > 0:
        return
    if as_json:
        print_json(asdict(run.summary))
    else:
        print(run.summary)


def generate(
    path: Annotated[str, typer.Argument(metavar="RUN", help="A run or a checkpoint.")],
    prompt: Annotated[str, typer.Option(help="Text to continue; empty starts a document.")] = "",
    max_new_tokens: Annotated[int, typer.Option(min=1, max=2**31 - 1)] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample among the k likeliest tokens.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
    as_json: Json = False,
) -> None:
    """Continue a text with a trained model."""
    if not math.isfinite(temperature):
        raise InputError(f"--temperature {temperature}: give a finite number, 0 for the likeliest token")
    from seedbed.api import load

    text = load(path).continue_text(prompt, max_new_tokens, temperature, top_k, seed)
    print_json({"prompt": prompt, "text": text}) if as_json else print(prompt + text)
