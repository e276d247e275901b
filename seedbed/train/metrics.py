"""Metrics of a run: JSON lines in the run's folder, and TensorBoard where asked for."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbed.errors import InputError
from seedbed.files.atomic import write_atomic

METRICS = "metrics.jsonl"

Tracker = Callable[[dict[str, Any]], None]
"""Receives each row once it is written, as the file has it: a copy of its own."""


def read_metrics(run_dir: str | Path) -> list[dict[str, Any]]:
    """The rows of a run. A torn last line, as a killed process leaves it, is not a row; damaged lines are left out,
    with a warning.
    """
    rows, _ = _read(Path(run_dir) / METRICS)
    return rows


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows in the file ``path``, and how many damaged lines were left out."""
    if not path.exists():
        return [], 0
    rows, damaged = [], []
    lines = path.read_bytes().split(b"\n")[:-1]  # after the last newline: nothing, or torn
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if not isinstance(row["step"], int) or not isinstance(row["kind"], str):
                raise TypeError
            rows.append(row)
        except (ValueError, TypeError, KeyError):
            damaged.append(number)
    if damaged:
        more = f" (and {len(damaged) - 1} more lines)" if len(damaged) > 1 else ""
        warnings.warn(f"{path}:{damaged[0]}: not a row of metrics, left out{more}", stacklevel=3)
    return rows, len(damaged)


class Metrics:
    """Appends rows ``{"kind": ..., "step": completed steps, ...}`` to ``metrics.jsonl``.

    Kinds: train, an update; guard, a batch that made none; gradients; weights; eval; checkpoint, a save.
    """

    def __init__(self, run_dir: str | Path | None, step: int, trackers: list[Tracker]):
        """Opens the file, cut back to the rows up to ``step`` completed steps; without a folder rows go nowhere."""
        self._run_dir, self._file, self._trackers = run_dir, None, trackers
        self._error: Exception | None = None
        self.cut(step)

    def cut(self, step: int) -> None:
        """Take back the rows after ``step`` completed steps; a file with damaged lines is kept beside as it was."""
        if self._run_dir is None:
            return
        self.close()
        path = Path(self._run_dir) / METRICS
        rows, damaged = _read(path)
        if damaged:
            write_atomic(path.with_name(f"{METRICS}.damaged"), path.read_bytes())
        write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows if row["step"] <= step))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close())

    def write(self, row: dict[str, Any]) -> None:
        """Append a row. An error is kept for `sync`, and no further row is written: one rank alone must not leave."""
        if self._file is None or self.failed:
            return
        try:
            line = json.dumps(row, allow_nan=False)
            self._file.write(line + "\n")
            self._file.flush()
            for tracker in self._trackers:
                tracker(json.loads(line))
        except Exception as error:
            self._error = error

    @property
    def failed(self) -> bool:
        """Whether `sync` will raise."""
        return self._error is not None

    def sync(self) -> None:
        """Put the rows on the disk, so that a checkpoint never outlives the rows before it.

        Raises what kept one from being written.
        """
        if self._error is not None:
            raise self._error
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@contextmanager
def tensorboard(run_dir: str | Path, step: int) -> Iterator[Tracker]:
    """A tracker that writes scalars to ``RUN/tensorboard``, where rows after ``step`` are taken back.

    Raises InputError where TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("train.tensorboard: TensorBoard is not installed; pip install 'seedbed[track]'") from None
    folder, writers = str(Path(run_dir) / "tensorboard"), []

    def open_at(row_step: int) -> None:
        """What stands there from this step on is taken back."""
        while writers:
            writers.pop().close()
        writers.append(SummaryWriter(folder, purge_step=row_step))

    def track(row: dict[str, Any]) -> None:
        if row.get("action") == "rollback":
            open_at(row["step"])
        for name, value in _scalars(row):
            writers[0].add_scalar(f"{row['kind']}/{name}", value, row["step"])
        writers[0].flush()

    open_at(step + 1)
    try:
        yield track
    finally:
        writers[0].close()


def _scalars(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a row, those of its parts too: ``components/attn.q/0/rms``."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in ("step", "seconds"):
            yield prefix + key, value
