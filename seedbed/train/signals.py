"""Stopping on request: a first signal asks the loop to save and stop, a second one stops at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from seedbed.errors import SignalStop


class StopRequest:
    """``signum`` is None until SIGINT or SIGTERM arrives."""

    signum: int | None = None


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Within the block, SIGINT and SIGTERM set the request instead of ending the process.

    Outside the main thread, where Python lets nobody install handlers, the request simply never comes.
    """
    request = StopRequest()

    def note(signum: int, _frame: FrameType | None) -> None:
        if request.signum is not None:
            raise SignalStop(signum, "stopped at once by a second signal, without saving")
        request.signum = signum

    try:
        previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        previous = {}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
