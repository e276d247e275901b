"""Signs of life of the ranks, and which of them the others wait for.

``RUN/ranks/0003.json`` says where rank 3 is, written over every second by a thread of its own: a step costs an
assignment a phase. ``RUN/ranks/0003.log`` says what befell it: starts, warnings, stacks where it hangs, how it ended.
"""

import faulthandler
import json
import os
import platform
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from seedbed.errors import LostRank
from seedbed.files.steps import standing, step_folders
from seedbed.parallel.world import World, between_ranks, first_line

BEAT_S = 1.0
SILENT_BEATS = 4
"""A rank whose beat has not changed for so many has died or stands still."""
LOOKOUTS = 2
"""So many ranks, the first ones, look at all: were it all of W, they would open W^2 files at once."""


@dataclass(frozen=True)
class Beat:
    """A rank as it was a moment ago."""

    rank: int
    host: str
    pid: int
    count: int
    """Of beats: as long as it grows, the process lives."""
    passed: int
    """Of places; a rank with less than others is behind."""
    step: int
    phase: str
    waited_s: int
    """Since it came to this place."""
    end: str = ""
    """"done"; "lost", where it ended because of another rank; else the error that ended it."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, process {self.pid})"

    @property
    def failed(self) -> bool:
        return self.end not in ("", "done", "lost")


def blame(before: list[Beat | None], now: list[Beat | None]) -> tuple[list[int], str]:
    """(the ranks that the others wait for, a line about them), from the beats of all ranks at two moments.

    In this order: those that an error of their own ended; that gave no sign of life between; that are behind.
    """
    known = [beat for beat in now if beat is not None]
    running = [beat for beat in known if not beat.end]
    failed = [(beat, f"ended: {beat.end}") for beat in known if beat.failed]
    silent = [
        (beat, f"gives no sign of life after step {beat.step} ({beat.phase})") for beat in running if beat in before
    ]
    furthest = max((beat.passed for beat in known), default=0)
    behind = [
        (beat, f"has not come past step {beat.step} ({beat.phase}) for {beat.waited_s} s")
        for beat in running
        if beat.passed < furthest
    ]
    found = failed or silent or behind
    if found:
        more = f", and {len(found) - 3} ranks more" if len(found) > 3 else ""
        return [beat.rank for beat, _ in found], "; ".join(f"{beat} {what}" for beat, what in found[:3]) + more
    places = sorted({f"step {beat.step} ({beat.phase})" for beat in running})
    return [], f"all ranks live, at {' and '.join(places) or 'no step'}: the network, or one hangs inside of it"


class Watch:
    """A rank's beat and log, and its look at the others."""

    def __init__(self, world: World, run_dir: Path, patience_s: float):
        """``patience_s``: how long the rank may be at one place before it says which others it waits for."""
        self._run_dir, self.folder, self.end = run_dir, run_dir / "ranks", ""
        self._world, self._patience_s, self._count = world, patience_s, 0
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="watch", daemon=True)

    def start(self) -> None:
        """Begin with a beat of every rank, so that none is read that an earlier start left."""
        world = self._world
        world.by_lead(lambda: self.folder.mkdir(exist_ok=True))
        world.together(self._check_in)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._beat_if_it_can()
        self.note(f"ended: {self.end}")

    def note(self, what: str) -> None:
        """A line of this rank's log, where the disk takes it."""
        place, now = self._world.place, datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(f"{now} step {place.step} ({place.phase}): {what}\n")
        except OSError as error:
            self._complain(error)

    @property
    def log(self) -> Path:
        return self.folder / f"{self._world.rank:04d}.log"

    def beat(self) -> None:
        """Opened and closed each time, which is when a network file system shows a file to others."""
        self._count += 1
        place = self._world.place
        waited = int(time.monotonic() - place.since)
        beat = Beat(self._world.rank, self._host, self._pid, self._count, *place[:3], waited, self.end[:200])
        text = json.dumps(asdict(beat)).encode() + b"\n"
        descriptor = os.open(self.folder / f"{beat.rank:04d}.json", os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)

    def _beat_if_it_can(self) -> None:
        try:
            self.beat()
        except OSError as error:
            self._complain(error)

    def find(self) -> tuple[list[int], str] | None:
        """As :func:`blame`; it takes as long as a living rank may be silent. None where that is left to a lookout that
        lives, or has ended with a word of its own.
        """
        if self._world.rank >= LOOKOUTS:
            before, now = self._look(LOOKOUTS)
            if any(beat is not None and (beat.end or beat not in before) for beat in now):
                return None
        return blame(*self._look(self._world.size))

    def _look(self, ranks: int) -> tuple[list[Beat | None], list[Beat | None]]:
        """The beats of the first ``ranks``, None of one that was read while it was written, and those a while later."""
        before = now = [self._read(rank) for rank in range(ranks)]
        for _ in range(SILENT_BEATS):
            if any(beat is not None and beat.failed for beat in now):
                break
            self._beat_if_it_can()
            time.sleep(BEAT_S)
            now = [self._read(rank) for rank in range(ranks)]
        return before, now

    def lost(self, error: BaseException) -> LostRank:
        """What to raise where talking to the others has failed with ``error``."""
        found = self.find()
        ranks, line = found or ([], "ranks cannot talk with each other")
        self.note(f"{line}; {first_line(error)}")
        after = "goes on from it" if step_folders(self._run_dir) else "starts over"
        lost = LostRank(f"{line}; the logs are in {self.folder}; {standing(self._run_dir)}: the same command {after}")
        lost.elsewhere = found is None or not self._speaks(ranks)
        return lost

    def _speaks(self, found: list[int]) -> bool:
        """Whether this is the first of those that look which is none of those ``found``."""
        looking = range(LOOKOUTS if self._world.rank < LOOKOUTS else self._world.size)
        return self._world.rank == next((rank for rank in looking if rank not in found), 0)

    def _live(self) -> None:
        told = -1
        while not self._over.wait(BEAT_S):
            place = self._world.place
            try:
                self.beat()
                if time.monotonic() - place.since > self._patience_s and place.passed != told:
                    told = place.passed
                    self._tell()
            except OSError as error:
                self._complain(error)

    def _complain(self, error: OSError) -> None:
        """A full disk: the others may take this rank for silent, but its work goes on."""
        print(f"rank {self._world.rank}: {self.folder}: {error.strerror}", file=sys.stderr, flush=True)

    def _tell(self) -> None:
        """Say whom all wait for, and leave this rank's stacks in its log."""
        found = self.find()
        if found is not None:
            self.note(found[1])
        with open(self.log, "a", encoding="utf-8") as file:
            faulthandler.dump_traceback(file)
        if found is not None and self._speaks(found[0]):
            print(f"waiting: {found[1]}; stacks are in {self.folder}", file=sys.stderr, flush=True)

    def _check_in(self) -> None:
        device = self._world.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        self.beat()
        self.note(f"{self._host}, process {self._pid}, {device} ({name}), torch {torch.__version__}")

    def _read(self, rank: int) -> Beat | None:
        try:
            return Beat(**json.loads((self.folder / f"{rank:04d}.json").read_bytes().partition(b"\n")[0]))
        except (ValueError, TypeError, FileNotFoundError):
            return None


@contextmanager
def watching(world: World, run_dir: Path, timeout_s: float) -> Iterator[None]:
    """Within the block this rank gives signs of life, and after half of ``timeout_s`` at one place says whom it awaits.

    Raises LostRank, naming the rank, where talking to the others fails. Does nothing for a rank alone.
    """
    if world.size == 1:
        yield
        return
    watch, shown = Watch(world, run_dir, timeout_s / 2), warnings.showwarning

    def noted(message: Warning | str, *arguments: Any, **named: Any) -> None:
        watch.note(f"warning: {message}")
        shown(message, *arguments, **named)

    watch.start()
    warnings.showwarning = noted
    try:
        yield
        watch.end = "done"
    except BaseException as error:
        if between_ranks(error):
            watch.end = "lost"
            raise watch.lost(error) from error
        watch.end = f"{type(error).__name__}: {first_line(error)}"
        raise
    finally:
        warnings.showwarning = shown
        watch.stop()
