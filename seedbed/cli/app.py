"""All commands, and how they end."""

import errno
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from seedbed import __version__
from seedbed.cli import (
    analyze,
    bench,
    chat,
    checkpoint,
    config,
    data,
    eval,
    export,
    generate,
    import_,
    preflight,
    quickstart,
    serve,
    study,
    tokenizer,
    train,
)
from seedbed.cli.streams import open_streams
from seedbed.errors import GuardStop, InputError, LostRank, SignalStop
from seedbed.parallel.launched import launched

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
app.add_typer(tokenizer.app, name="tokenizer", help="Train, import and measure tokenizers.")
app.add_typer(data.app, name="data", help="Turn text into a token store, and look into one.")
app.add_typer(analyze.app, name="analyze", help="Look inside models: weights, and what they do with text.")
app.command("eval")(eval.evaluate)
app.add_typer(checkpoint.app, name="checkpoint", help="Verify, list, prune, average and merge checkpoints.")
app.command("preflight")(preflight.preflight)
app.command("bench")(bench.bench)
app.command("export")(export.export)
app.command("import")(import_.import_)
app.add_typer(study.app, name="study", help="Grids of runs that are compared: plan, carry out, report.")
app.command("train")(train.train)
app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.command("serve")(serve.serve)


# What to do about the troubles that files have.
ADVICE = {
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "make room, and run the same command again",
    errno.EDQUOT: "make room, and run the same command again",
    errno.EEXIST: "choose another name, or remove it",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "name a file",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def run() -> None:
    """Run a command and turn the deliberate ways to stop into exit codes.

    2: wrong input, or a file that cannot be read or written; 3: a guard; 75: another rank was lost; 130 and 143:
    signals; 1: a reader of our output that has gone, and our own mistakes, with a traceback. Of several ranks one
    speaks.
    """
    rank, size = 0, 1
    interrupts = _count_interrupts()
    try:
        open_streams()
        rank, size = launched()
        warnings.showwarning = _show_warning if rank == 0 else _leave_to_the_log
        code = app(standalone_mode=False)
        if code == 130:  # how typer returns from Ctrl-C
            raise KeyboardInterrupt
        print(end="", flush=True)  # a full disk or a reader that has gone shows here, not at the interpreter's end
    except (InputError, GuardStop, SignalStop, LostRank) as stop:
        _take_turns(stop, rank)
        kind = {GuardStop: "stopped", SignalStop: "interrupted"}.get(type(stop), "error")
        _say(f"{kind}: {stop}")
        code = {InputError: 2, GuardStop: 3, LostRank: 75}.get(type(stop)) or 128 + stop.signum  # pyright: ignore
    except (KeyboardInterrupt, typer.Abort):
        code = _interrupted(rank)
    except OSError as error:
        _take_turns(error, rank)
        code = _file_trouble(error)
    except Exception as error:
        _take_turns(error, rank)
        if interrupts:
            code = _interrupted(rank)
        # click's own errors (an unknown option) carry their exit code and know how to show themselves
        elif hasattr(error, "exit_code") and hasattr(error, "show"):
            error.show()  # pyright: ignore[reportAttributeAccessIssue]
            code = error.exit_code  # pyright: ignore[reportAttributeAccessIssue]
        else:
            raise
    code = code if isinstance(code, int) else 0
    # the feeder of a pool's queue is no such thread, and its semaphores are to be given back
    alive = [thread for thread in threading.enumerate() if thread.daemon and thread.name != "QueueFeederThread"]
    if size > 1 or (code > 128 and alive):
        _leave(code)
    sys.exit(code)


def _count_interrupts() -> list[int]:
    """Ctrl-C raises KeyboardInterrupt as ever, and is put on the list: where it comes while a library calls Python, as
    safetensors does for each tensor it reads, the library makes an error of its own of it."""
    came: list[int] = []

    def interrupt(signum: int, frame: object) -> None:
        came.append(signum)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    return came


def _interrupted(rank: int) -> int:
    """Say so; the exit code."""
    if rank == 0:
        _say("interrupted; what was finished is kept, and the same command goes on from there")
    return 130


def _leave(code: int) -> NoReturn:
    """End at once. While the interpreter goes down threads of gloo, or one that still writes a checkpoint when a second
    signal comes, may want it, and that ends the process by SIGABRT: it did in two of twelve runs of two ranks."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _take_turns(error: Exception, rank: int) -> None:
    """Of several ranks let one say what ended them all: the one it came from, or rank 0 where all raise it alike.

    torchrun ends all as soon as one has ended, so the others wait until that one has spoken.
    """
    alike = isinstance(error, GuardStop | SignalStop) or hasattr(error, "exit_code")
    if getattr(error, "elsewhere", False) or (rank > 0 and alike):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (to the end of the process)
        time.sleep(1)
    elif rank > 0:
        print(f"rank {rank}: ", end="", file=sys.stderr)


def _file_trouble(error: OSError) -> int:
    """One line about a file that cannot be read or written, and the exit code."""
    if error.errno is None:  # raised by a library with words of its own
        raise error
    try:
        print(end="", flush=True)
    except OSError:  # what is left in the buffer can go nowhere, and Python would try again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 1
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    where = " -> ".join(names) or "a file or the output"
    _say(f"error: {where}: {error.strerror}; {ADVICE.get(error.errno, 'check the path')}")
    return 2


def _say(message: str) -> None:
    print(*message.splitlines(), file=sys.stderr)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _leave_to_the_log(*_: object, **__: object) -> None:
    """Rank 0 shows the warnings of all; what another one adds stands in the log that it keeps while it trains."""
