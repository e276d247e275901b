"""Processes that are the ranks of one run, as torchrun would start them; one spawn serves many scenarios."""

import os
import pickle
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp


def on_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``work(*arguments)``, a function of a module, returns on each of ``size`` ranks."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.spawn(_rank, (size, port, Path(folder), work, arguments), size)  # pyright: ignore
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(size)]


def _rank(rank: int, size: int, port: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {k: str(v) for k, v in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, **address}.items()}
    torch.set_num_threads(1)
    (folder / str(rank)).write_bytes(pickle.dumps(work(*arguments)))
