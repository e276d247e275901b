"""How much memory is free, and how much a run will take. Linux tells; elsewhere nothing is known and nothing waits."""

import os
from pathlib import Path

from seedbed.analysis.resources import memory_parts
from seedbed.config.load import from_tree
from seedbed.data.store import Store
from seedbed.parallel.world import pick_device
from seedbed.study.limits import memory_left_mb
from seedbed.study.work import Task

BARE_MB = 600.0
"""What the process of a run holds beside its model: the libraries."""
RESERVE_MB = 500.0
"""What is left to the rest of the machine (choice)."""


def available_mb() -> float | None:
    """Memory that processes can still get without swapping, here and in the control groups of this one; None where the
    system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    free, left = int(values["MemAvailable"].split()[0]) / 1024, memory_left_mb()  # kB
    return free if left is None else min(free, left)


def resident_mb(pid: int) -> float:
    """Memory of a process of this machine, 0 once it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def expected_mb(task: Task) -> float:
    """What the process of a run will hold at most, on paper; of a run on a GPU what it holds beside that."""
    config = from_tree(task.config, task.name)
    if pick_device(config.train.device).type != "cpu":
        return BARE_MB
    assert config.data.store is not None
    parts = memory_parts(config, Store(config.data.store).header["seq_len"])
    return BARE_MB + sum(parts.values()) / 2**20


def fits(need_mb: float, running: dict[int, float]) -> bool:
    """Whether a process that needs so much may begin beside those of ``running``: what each will hold, by its id."""
    free = available_mb()
    if free is None:
        return True
    coming = sum(max(0.0, most - resident_mb(pid)) for pid, most in running.items())
    return need_mb <= free - coming - RESERVE_MB
