"""The command line: one thin command a stage. Help must stay light, so heavy rooms are imported inside commands."""

import sys
import warnings
from typing import Annotated

import typer

from seedbed import __version__
from seedbed.cli import config, data, preflight, quickstart, tokenizer, train
from seedbed.errors import GuardStop, InputError, SignalStop

app = typer.Typer(
    name="seedbed",
    help="A language-model pretraining laboratory in which initialization is a measured design choice.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


app.command("quickstart")(quickstart.quickstart)
app.add_typer(config.app, name="config", help="Show a resolved configuration, or the schema of all fields.")
app.add_typer(tokenizer.app, name="tokenizer", help="Train a byte-level BPE tokenizer.")
app.add_typer(data.app, name="data", help="Turn text into a token store, and look into one.")
app.command("preflight")(preflight.preflight)
app.command("train")(train.train)
app.command("generate")(train.generate)


def main() -> None:
    """Run a command and turn the deliberate ways to stop into exit codes: 2 input, 3 guard, 130 and 143 signals."""
    warnings.showwarning = _show_warning
    try:
        code = app(standalone_mode=False)
    except (InputError, GuardStop, SignalStop) as stop:
        kind = {InputError: "error", GuardStop: "stopped", SignalStop: "interrupted"}[type(stop)]
        print(f"{kind}: {stop}", file=sys.stderr)
        code = 2 if isinstance(stop, InputError) else 3 if isinstance(stop, GuardStop) else 128 + stop.signum
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        # click's own errors (an unknown option) carry their exit code and know how to show themselves
        if not hasattr(error, "exit_code") or not hasattr(error, "show"):
            raise
        error.show()  # pyright: ignore[reportAttributeAccessIssue]
        code = error.exit_code  # pyright: ignore[reportAttributeAccessIssue]
    if code == 130:
        print("interrupted; what was finished is kept, and the same command goes on from there", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
