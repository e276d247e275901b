"""Two ranks, of which one is killed: the other ends too, and both go on as if nothing had happened."""

import random
import socket
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from disturbed import SECONDS, STEPS
from launch import end, launch
from promises import Whole, check_finished, check_stopped, newest, read_whole

MORE = ["train.precision=fp64", "parallel.timeout_s=30"]


def ranks(training: list[str], run: Path) -> list[BaseProcess]:
    """Two processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [
        launch(
            [*training, *MORE, f"run.dir={run}"],
            run.with_name(f"rank{rank}.log"),
            env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]


def wait_for_checkpoint(run: Path, after: int, process: BaseProcess) -> None:
    """Until there is one of more steps, or the process has ended."""
    while process.exitcode is None and newest(run) <= after:
        process.join(0.02)


@pytest.fixture(scope="module", params=["ddp", pytest.param("fsdp", marks=pytest.mark.chaos)])
def of_two(request, plain, tmp_path_factory) -> tuple[list[str], Whole]:
    """The command, and what two ranks make undisturbed."""
    run, training = tmp_path_factory.mktemp("two") / "run", [*plain, f"parallel.strategy={request.param}"]
    all_kept = [*training, "train.checkpoint_every=1", "train.keep_checkpoints=99"]
    assert [end(rank) for rank in ranks(all_kept, run)] == [0, 0], run.with_name("rank0.log").read_text()
    return training, read_whole(run)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.chaos)])
def test_a_rank_that_is_killed(kills, of_two, tmp_path):
    training, whole = of_two
    run, rng = tmp_path / "run", random.Random(0)
    for kill in range(kills):
        before, both, victim = newest(run), ranks(training, run), rng.randrange(2)
        wait_for_checkpoint(run, before, both[victim])
        both[victim].join(rng.uniform(0, SECONDS / 2))
        both[victim].kill()
        code = end(both[1 - victim])
        check_stopped(run, whole, before)
        if newest(run) == STEPS:
            run = tmp_path / str(kill)
        else:
            assert code != 0
    assert [end(rank) for rank in ranks(training, run)] == [0, 0]
    check_finished(run, whole)
