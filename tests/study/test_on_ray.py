"""A study on a Ray of this machine: the same outcomes, also when a worker is killed; troubles in words."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tasks

from seedbed.errors import InputError
from seedbed.study import on_ray
from seedbed.study.on_ray import _do, _require_seen, _resources, ray_engine

HERE = Path(__file__).parent


def cluster(*cpus: float, gpus: int = 0) -> SimpleNamespace:
    nodes = [{"Alive": True, "Resources": {"CPU": number}} for number in cpus]
    gone = {"Alive": False, "Resources": {"CPU": 99.0}}
    return SimpleNamespace(
        nodes=lambda: [*nodes, gone, *nodes], cluster_resources=lambda: {"GPU": gpus} if gpus else {}
    )


def test_a_library_that_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"ray is not installed; pip install 'seedbed\[scale\]'"):
        ray_engine(1, print)


def test_what_ray_is_asked_for(tiny_store, tmp_path):
    on_cpu = tasks.task(tiny_store, tmp_path, "a", tasks.note)
    anywhere = tasks.task(tiny_store, tmp_path, "a", tasks.note, "train.device=auto")
    assert _resources(cluster(2.0, gpus=4), on_cpu) == {"num_cpus": 1, "num_gpus": 0}
    assert _resources(cluster(2.0, gpus=4), anywhere) == {"num_cpus": 1, "num_gpus": 1}
    assert _resources(cluster(2.0), anywhere) == {"num_cpus": 1, "num_gpus": 0}
    with pytest.raises(InputError, match=r"a run has 1 threads, the largest machine 0.5 CPUs"):
        _resources(cluster(0.5, 0.25), on_cpu)


def test_what_is_not_seen_here_is_said(tiny_store, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "SEEN_S", 0.2)
    with pytest.raises(InputError, match="name a folder that all machines share"):
        _require_seen(tmp_path / "a")
    assert _do(tasks.task(tiny_store, tmp_path, "a", tasks.note), str(tmp_path)).reason is None
    _require_seen(tmp_path / "a")


def test_a_run_that_is_killed_is_tried_once_more_by_its_worker(tiny_store, tmp_path):
    assert _do(tasks.task(tiny_store, tmp_path, "a", tasks.die_once), str(tmp_path)).reason is None
    end = _do(tasks.task(tiny_store, tmp_path, "b", tasks.die), str(tmp_path))
    assert end.reason == "killed by SIGKILL, perhaps for want of memory"
    assert len((tmp_path / "b" / "done").read_text().splitlines()) == 2


def test_a_stop_of_the_study_makes_a_run_save(tiny_store, tmp_path, monkeypatch):
    """Ray raises KeyboardInterrupt in the worker."""

    class Stopped:
        def __init__(self, running):
            self.running, self.process = running, running.process
            self.said, self.end = self, running.end

        def poll(self, _seconds):
            tasks.wait_for(tmp_path / "a" / "began")
            raise KeyboardInterrupt

    real = on_ray.start
    monkeypatch.setattr(on_ray, "start", lambda task, folder, gpu: Stopped(real(task, folder)))
    with pytest.raises(KeyboardInterrupt):
        _do(tasks.task(tiny_store, tmp_path, "a", tasks.until_told), str(tmp_path))
    assert (tmp_path / "a" / "saved").exists()


def on_a_ray(script: str, store: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a script of this folder, whose Ray writes under a HOME of its own."""
    (folder / "home").mkdir()
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"HOME": str(folder / "home"), "PYTHONPATH": paths, "TERM": "dumb"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(HERE / script), str(store), str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_a_study_whose_worker_is_killed_comes_to_the_same(tiny_store, tmp_path):
    process = on_a_ray("ray_study.py", tiny_store, tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said


@pytest.mark.chaos
def test_a_signal_ends_a_study_on_ray_after_its_runs_have_saved(tiny_store, tmp_path):
    process = on_a_ray("ray_stopped.py", tiny_store, tmp_path)
    tasks.wait_for(tmp_path / "a" / "began", tmp_path / "b" / "began", seconds=300)
    process.terminate()
    said, _ = process.communicate()
    assert process.returncode == 143, said
    assert (tmp_path / "a" / "saved").exists(), said
    assert (tmp_path / "b" / "saved").exists(), said
    assert not (tmp_path / "c").exists()
