"""What torchrun tells a process about itself; no torch, since commands ask before anything heavy is imported."""

import os

from seedbed.errors import InputError


def launched() -> tuple[int, int]:
    """(rank, number of ranks) of this process; (0, 1) where it was started alone.

    Raises InputError where the variables that torchrun sets are there in part or are no numbers.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return 0, 1
    rank = os.environ.get("RANK", "")
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing or not (size.isdecimal() and rank.isdecimal() and int(rank) < int(size)):
        raise InputError(
            f"environment: WORLD_SIZE={size} says that there are several ranks, but RANK={rank or 'nothing'}"
            + (f" and {', '.join(missing)} is missing" if missing else "")
            + "; start ranks with torchrun, or unset WORLD_SIZE"
        )
    return int(rank), int(size)


def restarts() -> int:
    """How often torchrun or Slurm has started this process's command before, by itself and with the same arguments.

    After the failure of one machine torchrun counts on that one only: the largest number of all ranks is the true one.
    """
    names = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return max(int(os.environ.get(name) or 0) for name in names)
