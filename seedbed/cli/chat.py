"""seedbed chat MODEL: a conversation in the terminal"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.analyze.present import MODEL
from seedbed.cli.generation_options import (
    MinP,
    Penalty,
    Seed,
    Stop,
    Temperature,
    Template,
    Tokens,
    TopK,
    TopP,
)
from seedbed.cli.options import Device, DeviceName, device_of
from seedbed.cli.output import console, visible
from seedbed.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from seedbed.serve.chat import Talk

PROMPT = "> "
WHY = {
    "length": "the answer was ended at --max-new-tokens",
    "context": "the model can read no further: the context is full",
}
"""What is said of an answer that did not end by itself."""


def chat(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL[0].upper() + MODEL[1:])],
    system: Annotated[
        str | None, typer.Option(help="What the conversation begins with.", show_default="what the template writes")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without a template: the text goes on.")] = False,
    max_new_tokens: Tokens = 512,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Penalty = 1.0,
    stop: Stop = None,
    seed: Seed = 0,
    chat_template: Template = "tokenizer",
    device: Device = DeviceName.auto,
) -> None:
    """Talk to a model. /reset forgets what was said, /quit ends; Ctrl-C stops an answer.

    Reads lines from a pipe too, and then writes answers alone to stdout. What does not fit the model any more is
    forgotten from the oldest turn on, and a line says so.
    """
    from seedbed.serve.options import Options

    options = Options(max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, tuple(stop or ()))
    if plain and system is not None:
        raise InputError("--plain: has no system message; leave out --system")
    from seedbed.data.chat import Chat
    from seedbed.data.template import load_template
    from seedbed.hub.models import open_model
    from seedbed.serve.chat import Talk

    opened = open_model(model, device_of(device))
    tokenizer = opened.tokenizer
    if not plain and chat_template == "tokenizer" and tokenizer.chat_template is None:
        raise InputError(
            f"{model}: its tokenizer has no chat template; pass --plain to go on with texts, or --chat-template with "
            "a file, or chatml where the tokenizer has its control tokens"
        )
    form = None if plain else Chat(load_template(chat_template, tokenizer), tokenizer)
    _converse(Talk(opened, form, options, system, seed), console(), console(stderr=True))


def _converse(talk: "Talk", screen: "Console", aside: "Console") -> None:
    """Read lines and answer them, until /quit or the end of the input. ``aside`` gets what is no answer."""
    asked = sys.stdin.isatty()
    if asked:
        aside.print(f"{talk.model.name}: /reset forgets what was said, /quit ends, Ctrl-C stops an answer", style="dim")
    for line in _lines(aside, asked):
        if line in ("/quit", "/exit"):
            return
        if line == "/reset":
            talk.reset()
            aside.print("forgotten", style="dim")
        elif line:
            _reply(talk, line, screen, aside)


def _lines(aside: "Console", asked: bool) -> Iterator[str]:
    while True:
        try:
            yield input(PROMPT) if asked else _piped()
        except EOFError:
            return
        except KeyboardInterrupt:
            if not asked:
                raise
            aside.print("\n/quit ends", style="dim")


def _piped() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _reply(talk: "Talk", line: str, screen: "Console", aside: "Console") -> None:
    def show(text: str) -> None:
        screen.out(visible(text), end="", highlight=False)
        screen.file.flush()

    def forgot(turns: int) -> None:
        aside.print(f"the context is full: the oldest {turns} turns are forgotten; /reset forgets all", style="dim")

    try:
        answer = talk.reply(line, show, forgot)
    except KeyboardInterrupt:
        screen.out()
        aside.print("stopped; what was said so far is kept", style="dim")
    except InputError as error:
        aside.print(f"not sent: {error}", style="dim", markup=False)
    else:
        screen.out()
        if answer.finish in WHY:
            aside.print(WHY[answer.finish], style="dim")
