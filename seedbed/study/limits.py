"""What this process may use of the machine: cores, memory and GPUs, as control groups (a container's limits) and the
environment leave them. Linux tells; elsewhere there are no such limits."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from seedbed.config import Config
from seedbed.parallel.world import pick_device

SYSTEM = Path("/")
"""Where the system's files lie."""
MB = 2**20


def cores() -> int:
    """Those that this process may use at once: of its affinity, and of the time that its control groups give it."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = core_quota()
    return mine if quota is None else max(1, min(mine, int(quota)))


def gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them; none without CUDA."""
    if not torch.cuda.is_available():
        return []
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(at) for at in range(torch.cuda.device_count())] if told is None else told.split(",")


def most_workers(config: Config) -> int:
    """How many runs like ``config`` fit beside each other: one a GPU where they use one, else one a core."""
    return cores() if pick_device(config.train.device).type == "cpu" else max(1, len(gpus()))


def core_quota(system: Path = SYSTEM) -> float | None:
    """Cores' worth of time that the control groups of this process give it; None where they set no limit.

    Version 2 has it in cpu.max, version 1 in cpu.cfs_quota_us and cpu.cfs_period_us (Linux, Documentation/admin-guide/
    cgroup-v2.rst and scheduler/sched-bwc.rst).
    """
    found = []
    for folder in _groups("cpu", system):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota, period = _text(folder / "cpu.cfs_quota_us") or "-1", _text(folder / "cpu.cfs_period_us") or "0"
        if int(quota) > 0 and int(period) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_left_mb(system: Path = SYSTEM) -> float | None:
    """What the control groups of this process leave it of memory; None where they set no limit.

    A limit less what is used; files that were read and can be dropped do not count as used.
    """
    found = []
    for folder in _groups("memory", system):
        for limit_file, used_file, dropped in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _text(folder / limit_file), _text(folder / used_file)
            if limit not in (None, "max") and used is not None:
                stat = dict(line.split() for line in (_text(folder / "memory.stat") or "").splitlines())
                found.append((int(limit) - int(used) + int(stat.get(dropped, 0))) / MB)
    return min(found, default=None)


def _groups(controller: str, system: Path) -> Iterator[Path]:
    """Folders of the control groups of this process that can limit it, its own and those above: all that are seen."""
    mounted = system / "sys/fs/cgroup"
    for line in (_text(system / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mounted / controller if controllers else mounted
        own = top / path.lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top) and folder.is_dir())


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:  # not there, or not ours to read
        return None
