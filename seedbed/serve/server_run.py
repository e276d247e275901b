"""The server as a process: its socket, its signals, its end."""

import signal
import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from seedbed.errors import InputError, SignalStop
from seedbed.serve.server_service import Service

FLUSH_S = 5
"""Seconds for answers that are finished to reach their clients, when the server ends."""

KEEP_S = 75
"""Seconds that an idle connection is kept: longer than clients keep theirs, else one may send into the closing."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ``port`` 0 takes a free one. Raises InputError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        what = error.strerror or str(error)
        raise InputError(f"--host {host} --port {port}: {what}; choose another, or 0 for a free port") from None


def address(listening: socket.socket) -> str:
    """Its URL."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(app: FastAPI, service: Service, listening: socket.socket, grace_s: float) -> None:
    """Serve until a signal asks to stop; then refuse new requests and give those that run ``grace_s`` seconds.

    Always ends by an exception: SignalStop.
    """
    config = uvicorn.Config(
        app, log_level="error", access_log=False, timeout_keep_alive=KEEP_S, timeout_graceful_shutdown=FLUSH_S
    )
    server = _Server(config)
    server.service, server.grace_s = service, grace_s
    server.run(sockets=[listening])
    if server.signum is None:
        raise RuntimeError("the server ended by itself")
    name, cut = signal.Signals(server.signum).name, server.cut
    how = f"{cut} answers were cut off" if cut else "all answers were finished"
    raise SignalStop(server.signum, f"{name}: the server has stopped; {how}")


class _Server(uvicorn.Server):
    """Ends in two steps: no new requests, then none at all."""

    service: Service
    grace_s: float
    signum: int | None = None
    _until = 0.0
    cut = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the grace time, a second one ends it."""
        now = time.monotonic()
        self._until = now + self.grace_s if self.signum is None else now
        self.signum = self.signum or sig
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        engine = self.service.engine
        if self.signum is not None and (engine.written == 0 or time.monotonic() >= self._until):
            self.cut = engine.written
            engine.fail("the server is shutting down")
            self.should_exit = True
        return await super().on_tick(counter)
