import errno
import fcntl
import os
import signal
import time

import pytest

from seedbed.errors import InputError
from seedbed.files.lock import folder_lock


def hold_in_child(path) -> int:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with folder_lock(path):
            os.write(write, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(read, 1)
    return child


def test_second_process_is_refused_by_name_until_the_first_is_killed(tmp_path):
    child = hold_in_child(tmp_path / "run")
    try:
        with pytest.raises(InputError, match=f"in use by process {child}"), folder_lock(tmp_path / "run"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with folder_lock(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text() == str(os.getpid())


def test_lock_is_free_after_use_and_after_an_error(tmp_path):
    with folder_lock(tmp_path), pytest.raises(InputError), folder_lock(tmp_path):
        pass
    with pytest.raises(RuntimeError), folder_lock(tmp_path):
        raise RuntimeError
    with folder_lock(tmp_path):
        pass


def test_a_file_system_that_does_not_lock_is_refused(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(InputError, match=r"does not lock files \(No locks available\)"), folder_lock(tmp_path / "run"):
        pass


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="is a file"), folder_lock(path):
            pass


@pytest.mark.parametrize("then", ["held by another process", "free"])
def test_a_lock_file_that_its_holder_has_just_removed_locks_nothing(then, tmp_path, monkeypatch):
    """Opened here while the holder still had it, gone before it is locked here."""
    flock, children = fcntl.flock, []

    def late(file, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / "run" / ".lock").unlink()
        (tmp_path / "run").rmdir()
        if then != "free":
            children.append(hold_in_child(tmp_path / "run"))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    try:
        if then == "free":
            with folder_lock(tmp_path / "run"):
                assert (tmp_path / "run" / ".lock").read_text() == str(os.getpid())
        else:
            with pytest.raises(InputError, match="in use by process ") as refused, folder_lock(tmp_path / "run"):
                pass
            assert f"process {children[0]};" in str(refused.value)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
