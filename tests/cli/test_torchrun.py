"""Runs that torchrun started: what is shown, how they end, and that nothing is lost. Each start takes many seconds."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny import TINY, same, weights
from torch.distributed.run import parse_args

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "cpu.yaml"
SCRIPT = ROOT / "recipes" / "slurm" / "train.sbatch"
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


class Started:
    """Two ranks under torchrun, training ``run``."""

    def __init__(self, store: Path, run: Path, *arguments: str, options: tuple[str, ...] = ()):
        command = ["torchrun", *options, "--nproc-per-node", "2", "-m", "seedbed", "train", str(RECIPE), *TINY]
        command += [f"data.store={store}", f"run.dir={run}", "train.checkpoint_every=10", *arguments]
        pipe = subprocess.PIPE
        self.run = run
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT, cwd=ROOT)

    def wait_for(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not there():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def at_step(self, step: int) -> None:
        metrics = self.run / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and f'"step": {step},' in metrics.read_text())

    def beat(self, rank: int) -> dict:
        return json.loads((self.run / "ranks" / f"{rank:04d}.json").read_text())

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


def exit_codes(err: str) -> list[int]:
    """Of the ranks, as torchrun lists them."""
    return sorted(map(int, re.findall(r"exitcode  : (-?\d+)", err)))


def said(err: str) -> list[str]:
    """The lines of stderr that are ours."""
    return [
        line for line in err.splitlines() if re.match(r"(rank \d+: |error: |stopped: |interrupted|warning: )", line)
    ]


@pytest.mark.slow
def test_output_comes_once_and_another_run_in_the_folder_is_refused(tiny_store, tmp_path):
    first = Started(tiny_store, tmp_path / "run", "train.steps=400", "--json")
    first.at_step(20)
    ranks = [first.beat(rank)["pid"] for rank in (0, 1)]
    for rank in ranks:  # so that it is not done before the other one has started
        os.kill(rank, signal.SIGSTOP)
    code, out, err = Started(tiny_store, tmp_path / "run", "train.steps=400").end()
    for rank in ranks:
        os.kill(rank, signal.SIGCONT)
    assert (code, out) == (1, "")
    (line,) = said(err)
    assert re.match(r"error: .*run: in use by process \d+; wait for it", line)
    assert set(exit_codes(err)) == {2}
    code, out, err = first.end()
    assert code == 0
    assert json.loads(out)["steps"] == 400
    assert err.count("block matrices") == err.count("train 400/400") == err.count("writing ") == 1
    assert said(err) == []
    code, out, err = Started(tiny_store, tmp_path / "run", "train.steps=20", "--fresh").end()
    assert (code, out.count("held out")) == (0, 1)
    assert (tmp_path / "run" / "checkpoints" / "step_00000020").exists()
    assert not (tmp_path / "run" / "checkpoints" / "step_00000400").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["optim.lrr=1"], "error: override 'optim.lrr=1': optim.lrr: unknown key"),
        (["data.store=nowhere"], "error: nowhere: no token store there"),
        (["train.batch_size=3"], "error: "),
    ],
)
def test_wrong_input_is_shown_once(tiny_store, tmp_path, arguments, line):
    code, out, err = Started(tiny_store, tmp_path / "run", *arguments).end()
    assert (code, out) == (1, "")
    (shown,) = said(err)
    assert shown.startswith(line)
    assert set(exit_codes(err)) == {2}
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "rank"), [(signal.SIGTERM, 143, None), (signal.SIGINT, 130, 1)])
def test_a_signal_to_torchrun_or_a_rank_saves_on_all(tiny_store, tmp_path, number, code, rank):
    started = Started(tiny_store, tmp_path / "run", "train.steps=100000")
    started.at_step(25)
    os.kill(started.process.pid if rank is None else started.beat(rank)["pid"], number)
    _, _, err = started.end()
    (line,) = said(err)
    assert re.match(r"interrupted: saved .* after step \d+; the same command resumes it", line)
    assert all(f"ended: SignalStop: {line[13:]}" in log.read_text() for log in (tmp_path / "run/ranks").glob("*.log"))
    if rank is not None:  # of its own death torchrun tells nothing more
        assert exit_codes(err) == [code, code]


@pytest.mark.slow
def test_a_killed_rank_is_named_and_torchrun_starts_the_run_over(tiny_store, tmp_path):
    started = Started(tiny_store, tmp_path / "run", "train.steps=200", options=("--max-restarts", "1"))
    started.at_step(35)
    killed = started.beat(1)["pid"]
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    survivor = Path(f"/proc/{started.beat(0)['pid']}")
    started.wait_for(lambda: not survivor.exists())
    assert time.monotonic() - began < 20
    code, _, err = started.end()
    assert code == 0, err
    (line,) = said(err)
    assert re.match(
        rf"error: rank 1 \(.*, process {killed}\) gives no sign of life after step \d+ \(\w+\); the logs", line
    )
    assert re.search(r"the last checkpoint is .*run/checkpoints/step_\d+: the same command goes on from it", line)
    assert re.search(r"resuming .*run after step [34]0 of 200", err)
    assert Started(tiny_store, tmp_path / "whole", "train.steps=200").end()[0] == 0
    assert same(weights(tmp_path / "run", 200), weights(tmp_path / "whole", 200))


@pytest.mark.slow
def test_a_rank_that_stands_still_is_named_before_the_timeout_and_after(tiny_store, tmp_path):
    started = Started(tiny_store, tmp_path / "run", "train.steps=100000", "parallel.timeout_s=10")
    started.at_step(25)
    stopped = started.beat(1)["pid"]
    os.kill(stopped, signal.SIGSTOP)
    survivor = Path(f"/proc/{started.beat(0)['pid']}")
    started.wait_for(lambda: not survivor.exists())
    os.kill(stopped, signal.SIGKILL)
    _, _, err = started.end()
    named = rf"rank 1 \(.*, process {stopped}\) gives no sign of life"
    assert re.search(f"^waiting: {named}", err, re.MULTILINE)
    assert re.search(f"^error: {named}", err, re.MULTILINE)
    assert exit_codes(err) == [-9, 75]


def job(tmp_path: Path, srun: str) -> dict[str, str]:
    """The environment of a batch job on one node with two devices; ``srun`` is a shell's line."""
    (tmp_path / "bin").mkdir()
    for name, line in {
        "srun": srun,
        "scontrol": f'[ "$1" = show ] && echo localhost || echo "$@" >> {tmp_path}/queue',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    return {**ENVIRONMENT, **slurm, "PATH": f"{tmp_path}/bin{os.pathsep}{ENVIRONMENT['PATH']}"}


def test_the_slurm_script_starts_what_can_be_started(tmp_path):
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    command = ["bash", SCRIPT, RECIPE, "train.steps=20"]
    done = subprocess.run(command, env=job(tmp_path, 'printf "%q " "$@"'), capture_output=True, text=True, check=True)
    options, torchrun, *arguments = shlex.split(done.stdout)
    assert (options, torchrun) == ("--kill-on-bad-exit=1", "torchrun")
    parsed = parse_args(arguments)
    assert (parsed.nnodes, parsed.nproc_per_node, parsed.rdzv_endpoint) == ("1", "2", "localhost:29400")
    assert (parsed.module, parsed.training_script, parsed.training_script_args[0]) == (True, "seedbed", "train")
    show = [sys.executable, "-m", "seedbed", "config", "show", *parsed.training_script_args[1:]]
    shown = subprocess.run(show, capture_output=True, text=True, check=True)
    assert yaml.safe_load(shown.stdout)["train"]["steps"] == 20


@pytest.mark.slow
def test_the_slurm_script_saves_queues_itself_again_and_goes_on(tiny_store, tmp_path):
    run = tmp_path / "run"
    command = ["bash", SCRIPT, RECIPE, *TINY, f"data.store={tiny_store}", f"run.dir={run}", "train.steps=1000"]
    environment = job(tmp_path, 'shift; exec "$@"')
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (run / "ranks" / "0001.json").exists():
        time.sleep(0.1)
    time.sleep(0.3)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert len(said(err)) == 1, err
    assert (tmp_path / "queue").read_text() == "requeue 7\n"
    environment["SLURM_RESTART_COUNT"] = "1"
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    assert (tmp_path / "queue").read_text() == "requeue 7\n"
