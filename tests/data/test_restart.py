"""Preparing, killed at any moment: the same call goes on with what is not done and makes the same bytes."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from unittest import mock

import pytest
from killing import killed_at
from prepared import content, make, redone, spec_of, units, write_corpus

from seedbed.config.reader import to_json
from seedbed.data.store import Store

_MARK = "SEEDBED_TEST_RUN"


@pytest.fixture(scope="module")
def corpus(mixed_corpus) -> Path:
    return mixed_corpus


@pytest.fixture(scope="module")
def whole(corpus, tokenizer) -> Path:
    """A store that nothing interrupted, with the files of its stages."""
    make(spec_of(corpus, tokenizer.folder), corpus.parent / "whole", keep_work=True)
    return corpus.parent / "whole"


@pytest.fixture(autouse=True)
def encoding_does_not_fork_threads(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def damaged(whole, tmp_path) -> Path:
    """A copy in which three units are to be replaced."""
    copy = shutil.copytree(whole, tmp_path / "damaged")
    for file in ("work/clean/00001/table-00000.npy", "work/encode/00000/text.ids.bin", "train/00001/tokens.bin"):
        os.truncate(copy / file, (copy / file).stat().st_size - 3)
    return copy


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("begun", [False, True])
def test_killed_at_changes_of_the_disk(begun, stride, corpus, tokenizer, whole, damaged, tmp_path):
    """A new store, and one that is repaired: folders are replaced then, and between two renames one has no name.

    At each write, rename and removal, as far as the stride goes; what was finished before is not done again.
    """
    spec, want = spec_of(corpus, tokenizer.folder), content(whole)
    bad = {"work/clean/00001", "work/encode/00000", "train/00001"} if begun else set()
    step, died = 0, True
    while died:
        out = tmp_path / str(step)
        if begun:
            shutil.copytree(damaged, out)
        with mock.patch("seedbed.files.atomic.sync"), mock.patch("seedbed.data.prepare.sync"):
            died = killed_at(step, lambda out=out: make(spec, out, keep_work=True))
            before = units(out)
            make(spec, out, keep_work=True)
        assert content(out) == want, step
        assert redone(before, units(out)) & before.keys() <= bad, step
        assert not list(out.rglob(".partial-*")), step
        shutil.rmtree(out)
        step += stride
    assert step > (90 if begun else 250)


class Run:
    """`seedbed data prepare` in a process of its own, whose descendants are known by a variable."""

    def __init__(self, spec: Path, out: Path, workers: int, file_limit: int | None = None):
        self.mark = uuid.uuid4().hex
        command = [sys.executable, "-c", "from seedbed.cli import main; main()", "data", "prepare"]
        limits = resource.RLIMIT_FSIZE, (file_limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        self.process = subprocess.Popen(
            [*command, "--spec", spec, "-o", out, "--workers", str(workers), "--keep-work"],
            env=os.environ | {_MARK: self.mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(*limits),
        )

    def end(self) -> tuple[int, str]:
        """Exit code and the last line that it said."""
        _, err = self.process.communicate(timeout=120)
        return self.process.returncode, err.splitlines()[-1] if err else ""

    def workers(self) -> list[int]:
        """Its pool; processes of multiprocessing that only keep track of resources are not in it."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{_MARK}={self.mark}".encode() in (place / "environ").read_bytes()
                pooled = b"spawn_main" in (place / "cmdline").read_bytes()
            except OSError:
                continue
            if marked and pooled:
                found.append(int(place.name))
        return found

    def wait_until_gone(self) -> None:
        deadline = time.monotonic() + 10
        while self.workers() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not self.workers()


@pytest.fixture(scope="module")
def bigger(tmp_path_factory, tokenizer) -> tuple[Path, Path]:
    """A specification whose stages take a second, and its store."""
    folder = tmp_path_factory.mktemp("bigger")
    write_corpus(folder / "corpus", documents=400)
    spec = folder / "spec.json"
    spec.write_bytes(to_json(spec_of(folder / "corpus", tokenizer.folder, storage={"shard_tokens": 30_000}), "test"))
    assert Run(spec, folder / "whole", workers=1).end()[0] == 0
    return spec, folder / "whole"


def check_goes_on(spec: Path, out: Path, workers: int, whole: Path) -> int:
    """The same command ends well, with the same bytes; returns how many units the run before had finished."""
    before = units(out) if out.is_dir() else {}
    assert Run(spec, out, workers).end()[0] == 0
    assert content(out) == content(whole)
    assert not redone(before, units(out)) & before.keys()
    assert not list(out.rglob(".partial-*"))
    return len(before)


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments(workers, kills, bigger, tmp_path):
    spec, whole = bigger
    rng, found = random.Random(workers), []
    for kill in range(kills):
        run = Run(spec, tmp_path / str(kill), workers)
        wait_for_units(tmp_path / str(kill), rng.randint(0, len(units(whole)) - 1))
        time.sleep(rng.uniform(0, 0.05))
        run.process.kill()
        run.end()
        run.wait_until_gone()
        found.append(check_goes_on(spec, tmp_path / str(kill), workers, whole))
    assert kills == 1 or len(set(found)) > 5


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("workers", [1, 2])
def test_signals_end_the_workers_and_the_same_command_goes_on(signum, code, workers, bigger, tmp_path):
    spec, whole = bigger
    run = Run(spec, tmp_path / "store", workers)
    wait_for_units(tmp_path / "store", 2)
    run.process.send_signal(signum)
    ended, line = run.end()
    assert ended == code
    assert line.startswith("interrupted")
    assert line.endswith("what was finished is kept, and the same command goes on from there")
    run.wait_until_gone()
    assert check_goes_on(spec, tmp_path / "store", workers, whole) >= 2


def wait_for_units(store: Path, count: int) -> None:
    """Until so many are finished; what is built aside does not count. os.walk bears folders that vanish."""
    deadline = time.monotonic() + 60
    while sum("unit.json" in files and ".partial-" not in at for at, _, files in os.walk(store)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_worker_that_is_killed_ends_the_run_with_a_line(bigger, tmp_path):
    """As the system does where memory runs out."""
    spec, whole = bigger
    run = Run(spec, tmp_path / "store", workers=2)
    wait_for_units(tmp_path / "store", 1)
    os.kill(run.workers()[0], signal.SIGKILL)
    code, line = run.end()
    assert code == 3
    assert line.startswith(
        "stopped: a worker process was killed, perhaps for want of memory; what was finished is kept"
    )
    run.wait_until_gone()
    check_goes_on(spec, tmp_path / "store", 2, whole)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_run_with_a_line(workers, bigger, tmp_path):
    """A limit on the size of files stands in for it: cleaned text is larger than it."""
    spec, whole = bigger
    run = Run(spec, tmp_path / "store", workers, file_limit=50_000)
    code, line = run.end()
    assert code == 2
    assert line.startswith(f"error: {tmp_path / 'store' / 'work'}")
    assert "File too large" in line
    run.wait_until_gone()
    check_goes_on(spec, tmp_path / "store", workers, whole)


def test_two_commands_at_once(bigger, tmp_path):
    spec, whole = bigger
    first = Run(spec, tmp_path / "store", workers=1)
    wait_for_units(tmp_path / "store", 1)
    first.process.send_signal(signal.SIGSTOP)
    code, line = Run(spec, tmp_path / "store", workers=1).end()
    first.process.send_signal(signal.SIGCONT)
    assert code == 2
    assert f"in use by process {first.process.pid}" in line
    assert first.end()[0] == 0
    assert content(tmp_path / "store") == content(whole)
    Store(tmp_path / "store")
