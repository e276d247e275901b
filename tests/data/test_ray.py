"""Units on a Ray of this machine: the same store, workers that die, troubles that arrive as what they are."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prepared import content, spec_of, write_corpus

from seedbed.data.ray_engine import _raise, _UnitOfRank, ray_engine
from seedbed.data.stages import Unit, facts_of
from seedbed.errors import GuardStop, InputError


def work(folder: Path, where: Path) -> dict[str, Any]:
    (folder / "data").write_text(where.read_text())
    threads = [os.environ.get(name) for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS")]
    return {"in": str(Path.cwd()), "threads": threads}


def refuse(folder: Path, where: Path) -> dict[str, str]:
    raise InputError(f"{where}:1: bad")


def fill_the_disk(folder: Path, where: Path) -> dict[str, str]:
    raise OSError(errno.ENOSPC, "No space left on device", str(where))


def stumble(folder: Path, where: Path) -> dict[str, str]:
    raise ZeroDivisionError("a mistake of ours")


def die(folder: Path, where: Path) -> dict[str, str]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


@pytest.fixture
def do(tmp_path, monkeypatch):
    """Do a unit as a task does it, in this process and the one that it forks; raise what the engine would raise."""
    monkeypatch.chdir(tmp_path)
    Path("input").write_text("text")
    (tmp_path / "troubles").mkdir()
    previous = signal.getsignal(signal.SIGTERM)

    def call(unit_work) -> Unit:
        unit = Unit(tmp_path / "unit", "key", unit_work, (Path("input"),))
        step = _UnitOfRank([unit], tmp_path / "troubles")
        try:
            step(None, 0, 1)
        except ChildProcessError:
            (trouble,) = (tmp_path / "troubles").iterdir()
            _raise(json.loads(trouble.read_text()))
        return unit

    yield call
    signal.signal(signal.SIGTERM, previous)


def test_a_unit_runs_in_the_folder_of_the_command_on_one_core(do, tmp_path, monkeypatch):
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert facts_of(do(work)) == {"in": str(tmp_path), "threads": ["false", "1"]}


@pytest.mark.parametrize(
    ("unit_work", "kind", "message"),
    [
        (refuse, InputError, "^input:1: bad$"),
        (fill_the_disk, OSError, "No space left"),
        (stumble, RuntimeError, "ZeroDivisionError: a mistake of ours"),
        (die, GuardStop, "a worker process was killed"),
    ],
)
def test_troubles_arrive_as_what_they_are(do, unit_work, kind, message, tmp_path):
    with pytest.raises(kind, match=message) as caught:
        do(unit_work)
    assert not (tmp_path / "unit").exists()
    if kind is OSError:
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "input")


@pytest.mark.parametrize("missing", ["ray", "datatrove"])
def test_a_library_that_is_missing_is_said(missing, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"{missing}.* is not installed; pip install 'seedbed\[scale\]'"):
        ray_engine(1, tmp_path).__enter__()


DYING = '''"""Work of units that kill: once a worker of Ray, or always their own process."""
import os, signal, time
from pathlib import Path
from seedbed.data.stages import KILLED, Unit, run_stage
from seedbed.data.ray_engine import ray_engine
from seedbed.errors import GuardStop, InputError

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def kill_worker_once(folder, flag):
    if not flag.exists():
        flag.touch()
        os.kill(parent(os.getppid()), signal.SIGKILL)
        time.sleep(5)
        (flag.parent / "orphan lived").touch()
    return {"done": 1}

def kill_itself(folder, flag):
    os.kill(os.getpid(), signal.SIGKILL)

def refuse(folder, flag):
    raise InputError("file:1: bad")

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    here = Path.cwd()
    with ray_engine(2, here / "work") as engine:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        unit = lambda work: [Unit(here / work.__name__, "key", work, (here / "flag",))]
        assert run_stage("killed", unit(kill_worker_once), engine) == [{"done": 1}]
        for work, kind in ((kill_itself, GuardStop), (refuse, InputError)):
            try:
                run_stage("trouble", unit(work), engine)
            except kind as stop:
                assert str(stop) in (KILLED, "file:1: bad")
            else:
                raise AssertionError(work)
    assert not (here / "orphan lived").exists()
'''


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """Ray writes under HOME; it finds modules of the current folder."""
    (tmp_path / "home").mkdir()
    return os.environ | {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path), "TERM": "dumb"}


@pytest.mark.slow
def test_the_same_store_from_ray(tmp_path, tokenizer, environment):
    """Sources by a relative path; stdout has one JSON document, stderr what the local engine says there."""
    write_corpus(tmp_path / "corpus")
    spec = spec_of(Path("corpus"), tokenizer.folder)
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, "-c", "from seedbed.cli import main; main()", "data", "prepare", "--spec", "spec.json"]
    said = {}
    for engine in ("local", "ray"):
        options = ["-o", engine, "--engine", engine, "--workers", "2", "--json"]
        done = subprocess.run([*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        header = json.loads(done.stdout)["header"]
        said[engine] = [line.partition(" (")[0] for line in done.stderr.splitlines()]
        assert header["duplicates"] == {"exact": 4, "near": 2}
    assert said["ray"] == said["local"]
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert not (tmp_path / "ray" / "work").exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_a_unit_that_is_killed_is_told(tmp_path, environment):
    (tmp_path / "dying.py").write_text(DYING)
    done = subprocess.run([sys.executable, "dying.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # Ray's words about the worker go elsewhere
