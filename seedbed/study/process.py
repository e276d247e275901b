"""A run in a process of its own, forked from one that has everything imported: so that it costs no start-up."""

import errno
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess

from seedbed.errors import InputError, SignalStop
from seedbed.study.claim import claimed
from seedbed.study.work import Task, work

PRELOAD = ["seedbed.api", "seedbed.cli.app", "seedbed.study.process", "torch._dynamo"]
"""What a run needs; the optimizers import the last of them in their first step, which takes seconds."""
FULL = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]

_FORKS = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class End:
    """How a process ended."""

    reason: str | None = None
    """In one line; None where the run left its outcome."""
    signum: int | None = None
    """The signal that ended it, after saving or not: the run goes on from its last checkpoint."""
    disk_full: bool = False


@dataclass(frozen=True)
class Running:
    task: Task
    process: BaseProcess
    said: Connection
    """Ready when the process has ended, or as good as."""
    gpu: str | None
    """The one that it sees, as CUDA_VISIBLE_DEVICES names it; None where that was left as it is."""

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def end(self) -> End:
        """How it ended; waits until it has."""
        told = None
        with suppress(EOFError):
            told = self.said.recv()
        self.said.close()
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        self.process.close()
        if isinstance(told, End):
            return told
        if code < 0:
            return End(_in_words(-code), -code)
        return End(f"its process ended with code {code}")


def start(task: Task, folder: str, gpu: str | None = None) -> Running:
    """Begin a run in a process of its own, to which the paths of the task are relative to ``folder``. Of the GPUs it
    sees ``gpu`` alone, where one is named.

    The process leaves the terminal's signals to its parent; at SIGTERM, and when the parent is gone, it saves and ends.
    """
    said, saying = Pipe(duplex=False)
    _FORKS.set_forkserver_preload(PRELOAD)
    process = _FORKS.Process(target=_main, args=(task, folder, gpu, saying), daemon=True)
    threads = str(task.threads)
    # libraries read these when they are loaded, which happens once, in the process that the runs are forked from
    with _environment({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}):
        process.start()
    saying.close()
    return Running(task, process, said, gpu)  # pyright: ignore[reportArgumentType] (other pipes are those of Windows)


def _main(task: Task, folder: str, gpu: str | None, saying: Connection) -> None:
    os.setsid()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # read at CUDA's first use, which comes after the fork
    _end_with_parent()
    try:
        os.chdir(folder)
        with claimed(task.folder) as log:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
            work(task)
    except SignalStop as stop:
        saying.send(End(str(stop), stop.signum))
    except Exception as error:
        full = _disk_is_full(error)
        advice = "; make room, and run the same command again" if full and not isinstance(error, InputError) else ""
        saying.send(End(one_line(error) + advice, disk_full=full))
        with suppress(OSError):
            traceback.print_exc()
    else:
        saying.send(End())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def wait() -> None:
        wait_for([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def one_line(error: BaseException) -> str:
    """What went wrong, for a table."""
    message = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    return " ".join(message.split())


def _disk_is_full(error: BaseException | None) -> bool:
    """By the system's words: of the libraries that write, some keep its number and all keep those."""
    while error is not None:
        if any(words in str(error) for words in FULL):
            return True
        error = error.__cause__
    return False


def _in_words(signum: int) -> str:
    name = signal.Signals(signum).name
    return f"killed by {name}, perhaps for want of memory" if signum == signal.SIGKILL else f"ended by {name}"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
