"""`seedbed train` in processes of its own, forked from one that has imported everything.

So a launch costs no imports, and hundreds of kills take minutes. What is killed is a process, with its files and locks.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a launch hangs."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["seedbed.cli.app", "seedbed.api", "torch._dynamo", "pytest"])


def nothing() -> None:
    pass


def launch(
    arguments: list[str], log: Path, fault: Callable[[], None] = nothing, env: Mapping[str, str] | None = None
) -> BaseProcess:
    """Start `seedbed` with ``arguments``; what it says goes to ``log``.

    ``fault``, a function of a module or a partial of one, is called in the new process before the command.
    """
    process = _FORKS.Process(target=_command, args=(arguments, log, fault, env or {}))
    process.start()
    return process


def end(process: BaseProcess, patience: float = PATIENCE) -> int:
    """The exit code, negative the number of a signal; a process that does not end in time is a failure."""
    process.join(patience)
    hung = process.exitcode is None
    process.kill()
    process.join()
    assert not hung, "the process did not end"
    assert process.exitcode is not None
    return process.exitcode


def _command(arguments: list[str], log: Path, fault: Callable[[], None], env: Mapping[str, str]) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ |= env
    sys.argv = ["seedbed", *arguments]
    fault()
    from seedbed.cli import main

    main()
