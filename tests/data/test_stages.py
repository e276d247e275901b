"""Units of work: done once, redone when damaged or when their key changes, kept when a neighbour fails."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seedbed.data.stages import Unit, facts_of, in_process, key_of, local_engine, run_stage
from seedbed.errors import GuardStop, InputError


def work(folder: Path, number: int, log: Path) -> dict[str, int]:
    """A unit that writes, and notes that it ran."""
    (folder / "data.bin").write_bytes(bytes([number]) * 100)
    with open(log, "a") as file:
        file.write(f"{number}\n")
    return {"square": number * number}


def fail(folder: Path, number: int, log: Path) -> dict[str, int]:
    (folder / "half.bin").write_bytes(b"half")
    raise InputError(f"unit {number} cannot")


def die(folder: Path, number: int, log: Path) -> dict[str, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def idle(folder: Path) -> dict[str, int]:
    time.sleep(60)
    return {}


def doze(folder: Path) -> dict[str, int]:
    time.sleep(0.2)
    return {}


def threads(folder: Path) -> dict[str, str]:
    return {name: os.environ[name] for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS")}


def units(folder: Path, count: int = 4, key: str = "a", does=work) -> list[Unit]:
    return [Unit(folder / f"{i}", key_of(key, i), does, (i, folder / "log")) for i in range(count)]


def ran(folder: Path) -> list[int]:
    log = folder / "log"
    return sorted(map(int, log.read_text().split())) if log.is_file() else []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stage_is_done_once(tmp_path, workers):
    with local_engine(workers) as engine:
        for _ in range(2):
            assert run_stage("t", units(tmp_path), engine) == [{"square": i * i} for i in range(4)]
    assert ran(tmp_path) == [0, 1, 2, 3]


def test_only_what_is_damaged_missing_or_of_another_key_is_redone(tmp_path):
    run_stage("t", units(tmp_path), in_process)
    os.truncate(tmp_path / "0" / "data.bin", 97)
    changed = tmp_path / "1" / "data.bin"
    changed.write_bytes(b"x" + changed.read_bytes()[1:])
    (tmp_path / "2" / "commit.json").unlink()
    kept = (tmp_path / "3" / "data.bin").stat().st_mtime_ns
    run_stage("t", units(tmp_path), in_process)
    assert ran(tmp_path) == [0, 0, 1, 1, 2, 2, 3]
    assert (tmp_path / "3" / "data.bin").stat().st_mtime_ns == kept
    run_stage("t", units(tmp_path, key="b"), in_process)
    assert ran(tmp_path)[-3:] == [2, 3, 3]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unit_that_fails_leaves_nothing_and_its_neighbours_stay(tmp_path, workers):
    mixed = units(tmp_path, 3)
    mixed[1] = units(tmp_path, 3, does=fail)[1]
    with pytest.raises(InputError, match="unit 1 cannot"), local_engine(workers) as engine:
        run_stage("t", mixed, engine)
    assert not mixed[1].folder.exists()
    assert not list(tmp_path.glob(".partial-*-1"))
    if workers == 1:
        assert facts_of(mixed[0]) == {"square": 0}
    mixed[1] = units(tmp_path, 3)[1]
    assert run_stage("t", mixed, in_process) == [{"square": i * i} for i in range(3)]


def test_a_worker_has_one_core(tmp_path):
    with local_engine(2) as engine:
        (facts,) = run_stage("t", [Unit(tmp_path / "0", "k", threads, ())], engine)
    assert facts == {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def test_a_worker_that_is_killed_is_said(tmp_path):
    mixed = [*units(tmp_path, 2), units(tmp_path, 3, does=die)[2]]
    with pytest.raises(GuardStop, match="killed"), local_engine(2) as engine:
        run_stage("t", mixed, engine)


def test_only_the_workers_of_the_pool_are_ended(tmp_path):
    """A program that prepares data may have other children."""
    earlier = set(multiprocessing.active_children())
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    try:
        with pytest.raises(InputError), local_engine(2) as engine:
            run_stage(
                "t", [Unit(tmp_path / "0", "k", fail, (0, tmp_path)), Unit(tmp_path / "1", "k", idle, ())], engine
            )
        assert set(multiprocessing.active_children()) - earlier == {other}
        other.join(0.5)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_a_stage_says_where_it_stands_before_its_first_unit_is_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("seedbed.data.progress.SECONDS_BETWEEN_LINES", 0.05)
    run_stage("t", [Unit(tmp_path / "0", "k", doze, ())], in_process)
    assert "t: 0/1 shards (" in capsys.readouterr().err


def test_workers_end_with_their_parent(tmp_path):
    """A parent that is killed cannot clean up: its workers watch it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from seedbed.data.stages import Unit, local_engine, run_stage\n"
        "def wait(folder, number):\n"
        "    (Path(sys.argv[1]) / f'pid{os.getpid()}').touch()\n"
        "    time.sleep(60)\n"
        "    return {}\n"
        "if __name__ == '__main__':\n"
        "    with local_engine(2) as engine:\n"
        "        run_stage('t', [Unit(Path(sys.argv[1]) / str(i), 'k', wait, (i,)) for i in range(2)], engine)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stderr=subprocess.DEVNULL)
    pids: list[int] = []
    deadline = time.monotonic() + 30
    while len(pids) < 2 and time.monotonic() < deadline:
        pids = [int(path.name[3:]) for path in tmp_path.glob("pid*")]
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_keys_tell_values_apart():
    assert key_of("a", {"x": 1, "y": 2}) == key_of("a", {"y": 2, "x": 1})
    assert len({key_of("a", 1), key_of("a", "1"), key_of("a", [1]), key_of("b", 1), key_of("a", 1, None)}) == 5


def test_facts_are_json(tmp_path):
    run_stage("t", units(tmp_path, 1), in_process)
    assert json.loads((tmp_path / "0" / "unit.json").read_text())["facts"] == {"square": 0}
