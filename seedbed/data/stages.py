"""Units of work: each writes one folder, whole or not at all, under a key of everything that decides its content.

A unit whose folder is there, whole and under the same key, is done; so any run goes on where another one, killed or
out of disk, stopped, and a change of the specification redoes exactly what depends on it.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from seedbed.data.progress import spinner
from seedbed.errors import GuardStop
from seedbed.files.atomic import atomic_folder, folder_damage

FACTS = "unit.json"
KILLED = (
    "a worker process was killed, perhaps for want of memory; what was finished is kept: run the same command again, "
    "with fewer --workers"
)


@dataclass(frozen=True)
class Unit:
    """``work(folder, *arguments)``, a function of a module, writes files into ``folder`` and returns facts (JSON)."""

    folder: Path
    key: str
    work: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...]


Engine = Callable[[Sequence[Unit], Callable[[], None]], None]
"""Runs units, calling its second argument after each; raises what a unit raised."""


def key_of(*parts: Any) -> str:
    """A hash of JSON values; the first of them names the stage and its version."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()


def facts_of(unit: Unit, verify: bool = True) -> dict[str, Any] | None:
    """What a finished unit returned, or None where it is not finished: missing, of another key, or damaged.

    ``verify`` compares the content of its files with their hashes; otherwise their sizes.
    """
    try:
        record = json.loads((unit.folder / FACTS).read_text(encoding="utf-8"))
        if record["key"] != unit.key or folder_damage(unit.folder, hashed=lambda _: verify) is not None:
            return None
        return record["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_unit(unit: Unit) -> None:
    """Do one unit, in this process."""
    with atomic_folder(unit.folder) as folder:
        facts = unit.work(folder, *unit.arguments)
        (folder / FACTS).write_text(json.dumps({"key": unit.key, "facts": facts}, indent=1), encoding="utf-8")


def run_stage(title: str, units: Sequence[Unit], engine: Engine) -> list[dict[str, Any]]:
    """Do the units that are not done yet; the facts of all, in their order. Raises what a unit raised."""
    pending = [unit for unit in units if facts_of(unit) is None]
    if pending:
        done = len(units) - len(pending)
        with spinner(f"{title}:") as show:
            show(f"{done:,}/{len(units):,} shards")

            def finished() -> None:
                nonlocal done
                done += 1
                show(f"{done:,}/{len(units):,} shards")

            engine(pending, finished)
    found = [facts_of(unit, verify=False) for unit in units]
    for unit, facts in zip(units, found, strict=True):
        if facts is None:
            raise GuardStop(f"{unit.folder}: was not finished or was damaged at once; run the same command again")
    return [facts for facts in found if facts is not None]


@contextmanager
def local_engine(workers: int) -> Iterator[Engine]:
    """Units in this process (one worker), or in a pool of ``workers`` processes of their own."""
    if workers == 1:
        yield in_process
        return
    # spawned, not forked: the libraries' threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield lambda units, finished: _in_pool(pool, units, finished)
    except BaseException:
        # terminate_workers(), which Python has from 3.14 on; the caller's other children are not ours to end
        processes = list(pool._processes.values())  # pyright: ignore[reportPrivateUsage]
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        raise
    pool.shutdown()


def in_process(units: Sequence[Unit], finished: Callable[[], None]) -> None:
    """The engine that runs units here, one after another."""
    for unit in units:
        run_unit(unit)
        finished()


def _in_pool(pool: ProcessPoolExecutor, units: Sequence[Unit], finished: Callable[[], None]) -> None:
    futures: list[Future[None]] = []
    try:
        for unit in units:
            futures.append(pool.submit(run_unit, unit))
            futures[-1].add_done_callback(lambda future: None if future.cancelled() else finished())
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:  # in order: of several bad units the first is named
            if future.done() and not future.cancelled():
                future.result()
    except BrokenProcessPool:
        raise GuardStop(KILLED) from None


def use_one_core() -> None:
    """Keep the libraries of this process, a worker, from starting threads: there is a worker for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"


def _start_worker() -> None:
    """A worker has one core, leaves Ctrl-C to its parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_one_core()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
