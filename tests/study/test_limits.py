"""What control groups and the environment leave to a process, on files as Linux writes them."""

import os
from pathlib import Path

import pytest
import torch
from tiny import config

from seedbed.study import limits
from seedbed.study.limits import core_quota, cores, gpus, memory_left_mb, most_workers

MB = 2**20


def system(root: Path, groups: str, **files: str) -> Path:
    """A system whose process is in ``groups``; files by path below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for path, text in files.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def test_limits_of_version_2_are_the_tightest_of_the_group_and_those_above(tmp_path):
    files = {
        "user/job/cpu.max": "max 100000", "user/cpu.max": "250000 100000", "user/job/memory.max": str(900 * MB),
        "user/job/memory.current": str(500 * MB), "user/job/memory.stat": f"anon 5\ninactive_file {100 * MB}",
        "user/memory.max": "max", "user/memory.current": str(5000 * MB),
    }  # fmt: skip
    root = system(tmp_path, "0::/user/job\n", **files)
    assert core_quota(root) == 2.5
    assert memory_left_mb(root) == pytest.approx(500)


def test_a_container_of_version_2_sees_its_limits_at_the_root(tmp_path):
    files = {"cpu.max": "50000 100000", "memory.max": str(300 * MB), "memory.current": str(100 * MB)}
    root = system(tmp_path, "0::/\n", **files)
    assert (core_quota(root), memory_left_mb(root)) == (0.5, 200)


def test_limits_of_version_1(tmp_path):
    """The group's path is the host's, which a container does not see; the files at the root are its own."""
    files = {
        "cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(800 * MB), "memory/memory.usage_in_bytes": str(700 * MB),
        "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {50 * MB}",
    }  # fmt: skip
    root = system(tmp_path, "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:cpuset:/\n", **files)
    assert (core_quota(root), memory_left_mb(root)) == (3.0, 150)
    (root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert core_quota(root) is None


def test_no_limits(tmp_path):
    assert (core_quota(tmp_path), memory_left_mb(tmp_path)) == (None, None)
    root = system(tmp_path, "0::/\n", **{"cpu.max": "max 100000", "memory.max": "max", "memory.current": "5"})
    assert (core_quota(root), memory_left_mb(root)) == (None, None)


def test_cores_are_those_of_affinity_and_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for quota, expected in ((None, 8), (2.5, 2), (0.5, 1), (64.0, 8)):
        monkeypatch.setattr(limits, "core_quota", lambda quota=quota: quota)
        assert cores() == expected


def test_gpus_are_those_that_the_environment_leaves(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpus() == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5e")
    assert gpus() == ["3", "GPU-5e"]


def test_as_many_workers_as_gpus_else_as_cores(monkeypatch, tiny_store, tmp_path):
    monkeypatch.setattr(limits, "cores", lambda: 7)
    monkeypatch.setattr(limits, "gpus", lambda: ["0", "1", "2"])
    assert most_workers(config(tiny_store, tmp_path, "train.device=cpu")) == 7
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert most_workers(config(tiny_store, tmp_path, "train.device=auto")) == 3
