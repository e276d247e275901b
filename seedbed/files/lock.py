"""One writer a folder."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from seedbed.errors import InputError


@contextmanager
def folder_lock(path: str | Path) -> Iterator[None]:
    """Hold the folder ``path`` for this process; the system lets go of it even when the process is killed.

    Raises InputError, naming the holder's process id, when another process holds it, and where the file system does not
    lock. Folders that this call made, and
    the lock file where it made that, are removed again when the block ends and nothing else is in them.
    """
    path = Path(path)
    made = [folder for folder in (path, *path.parents) if not folder.exists()]  # the innermost first
    fresh = not (path / ".lock").exists()
    with _locked(path) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        os.fsync(file.fileno())  # other machines see it from now on
        try:
            yield
        finally:
            if fresh and [entry.name for entry in path.iterdir()] == [".lock"]:
                (path / ".lock").unlink()
                _remove_empty(made)


def _locked(path: Path) -> TextIO:
    """The lock file of ``path``, locked. Raises InputError as folder_lock."""
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{path}: is a file, or lies in one; name a folder") from None
        try:
            file = open(path / ".lock", "a+", encoding="ascii")  # noqa: SIM115
        except FileNotFoundError:  # its holder has just removed the folder that it had made
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise InputError(
                f"{path}: in use by process {holder}; wait for it, stop it, or choose another folder"
            ) from None
        except OSError as error:
            file.close()
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            raise InputError(
                f"{path}: its file system does not lock files ({error.strerror}); mount it so that it does (NFS: not "
                "nolock, with rpc.statd; Lustre: flock), or choose another folder"
            ) from None
        if _is_at(file, path / ".lock"):
            return file
        file.close()  # its holder removed it after it was opened here: locked, it would keep nobody out


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        if any(folder.iterdir()):
            return
        folder.rmdir()
