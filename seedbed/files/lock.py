"""One writer a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seedbed.errors import InputError


@contextmanager
def folder_lock(path: str | Path) -> Iterator[None]:
    """Hold the folder ``path`` for this process; the system lets go of it even when the process is killed.

    Raises InputError, naming the holder's process id, when another process holds it. A folder that this call made and
    that is still empty when the block ends is removed again.
    """
    path = Path(path)
    fresh = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: is a file, or lies in one; name a folder") from None
    with open(path / ".lock", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise InputError(
                f"{path}: in use by process {holder}; wait for it, stop it, or choose another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            if fresh and [entry.name for entry in path.iterdir()] == [".lock"]:
                (path / ".lock").unlink()
                path.rmdir()
