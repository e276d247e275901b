"""Stopping on request: a first signal asks the loop to save and stop, a second one stops at once."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from seedbed.errors import SignalStop

ECHO_S = 2.0
"""A repetition within so long is the same request: Slurm signals ranks and torchrun, which passes it on to them."""


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """``signum`` is None until one of SIGNALS arrives."""

    signum: int | None = None
    at: float = 0.0
    """time.monotonic() of its arrival."""

    def counts(self) -> list[int]:
        """1 for the one of SIGNALS that has arrived, 0 for others: what can be added up over ranks."""
        return [int(self.signum == number) for number in SIGNALS]


def requested(counts: Sequence[float]) -> int | None:
    """The signal that all stop for, by how many ranks each of SIGNALS came to."""
    return next((number for number, count in zip(SIGNALS, counts, strict=True) if count), None)


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Within the block, SIGINT and SIGTERM set the request instead of ending the process.

    Outside the main thread, where Python lets nobody install handlers, the request simply never comes.
    """
    request = StopRequest()

    def note(signum: int, _frame: FrameType | None) -> None:
        if request.signum is None:
            request.signum, request.at = signum, time.monotonic()
        elif time.monotonic() - request.at > ECHO_S:
            raise SignalStop(signum, "stopped at once by a second signal, without saving")

    try:
        previous = {number: signal.signal(number, note) for number in SIGNALS}
    except ValueError:
        previous = {}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
