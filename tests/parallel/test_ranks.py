"""Ranks as processes: whose error it is, who is behind, who has gone; one spawn."""

import os
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from tiny import config, quiet

from seedbed import api
from seedbed.errors import InputError, LostRank, SignalStop
from seedbed.parallel import watch
from seedbed.parallel.launched import launched
from seedbed.parallel.watch import Beat, blame, watching
from seedbed.parallel.world import World, open_world
from seedbed.train import setup
from seedbed.train.metrics import Metrics

BEAT_S = 0.1


class Unsendable(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def fails(error: Exception):
    raise error


def caught(work) -> tuple[str, str, bool]:
    """(type, text, whether another rank shows it) of the error that ``work()`` raises."""
    try:
        work()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "elsewhere", False)
    raise AssertionError("no error")


def behind(world: World, folder: Path) -> float:
    """Rank 1 comes late; returns seconds in a phase mark."""
    with watching(world, folder, timeout_s=4 * BEAT_S):
        world.at(12, "data")
        warnings.warn(f"rank {world.rank} is told", stacklevel=1)
        if world.rank == 1:
            time.sleep(20 * BEAT_S)
        world.at(12, "count")
        world.sum(1)
        began = time.perf_counter()
        for _ in range(10000):
            world.at(12, "count")
        return (time.perf_counter() - began) / 10000


def gone(world: World, folder: Path) -> None:
    with watching(world, folder, timeout_s=60):
        world.at(13, "forward")
        if world.rank == 1:
            raise ValueError("this one alone")
        world.sum(1)


def fitted(world: World, rank_dir: Path, store: Path, *overrides: str) -> tuple[str, str, bool]:
    """How fit ends on these ranks, from a working folder of each rank's own."""
    os.chdir(rank_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "open_world", lambda *_: nullcontext(world))
        patch.setattr(api, "SEEN_S", 0.2)
        return caught(lambda: api.fit(config(store, Path("run"), *overrides), quiet))


def unread(world: World, folder: Path, store: Path) -> tuple[str, str, bool]:
    """How fit ends where rank 1 alone cannot read or draw its weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "open_world", lambda *_: nullcontext(world))
        if world.rank == 1:
            patch.setattr(setup, "initialize", lambda *_: fails(InputError("cannot be read")))
        return caught(lambda: api.fit(config(store, folder), quiet))


def unwritten(world: World, folder: Path, store: Path) -> tuple[str, str, bool]:
    """How fit ends where the disk is full for the leading rank's row of step 3."""
    real = Metrics.write

    def write(metrics, row):
        if world.leads and row["step"] == 3:
            metrics._file = open("/dev/full", "w")  # noqa: SIM115
        real(metrics, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "open_world", lambda *_: nullcontext(world))
        patch.setattr(Metrics, "write", write)
        return caught(lambda: api.fit(config(store, folder, "train.eval_every=-1", "train.log_every=1"), quiet))


def silenced(world: World, folder: Path) -> int:
    """A warning of rank 1, whose log cannot be written, and the sum after it."""
    with watching(world, folder, timeout_s=60):
        if world.rank == 1:
            log = folder / "ranks" / "0001.log"
            log.unlink()
            log.mkdir()
        warnings.warn("all are told", stacklevel=1)
        return int(world.sum(1)[0])


def inside(world: World, folder: Path) -> None:
    """Rank 1 is long in what all do before the next mark."""
    with watching(world, folder, timeout_s=4 * BEAT_S):
        world.at(14, "checkpoint")
        world.together(lambda: time.sleep(20 * BEAT_S) if world.rank == 1 else None)


def between(world: World) -> None:
    """Rank 0 fails since rank 1 did not come, which knows why."""
    text = "[../gloo/transport/tcp/pair.cc:1] Connection closed by peer"
    world.together(lambda: fails(InputError("the reason") if world.rank == 1 else RuntimeError(text)))


def scenarios(store: Path, folder: Path) -> dict[str, tuple[str, str, bool] | float]:
    watch.BEAT_S = BEAT_S
    found = {}
    with pytest.raises(LostRank) as lost, open_world("cpu", 60) as world:
        mine = folder / str(world.rank)
        mine.mkdir()
        found["folder"] = fitted(world, mine, store)
        found["configuration"] = fitted(world, mine, store, f"train.steps={6 + world.rank}")
        found["one"] = caught(lambda: world.together(lambda: fails(InputError("mine")) if world.rank == 1 else 7))
        found["all"] = caught(lambda: world.together(lambda: fails(InputError(f"of {world.rank}"))))
        found["signal"] = caught(lambda: world.together(lambda: fails(SignalStop(15, "saved"))))
        found["unsendable"] = caught(lambda: world.together(lambda: fails(Unsendable(1, 2)) if world.rank else None))
        assert world.together(lambda: world.rank) == world.rank
        assert world.gather(world.rank) == [0, 1]
        found["between"] = caught(lambda: between(world))
        found["unread"] = unread(world, folder / "unread", store)
        found["unwritten"] = unwritten(world, folder / "unwritten", store)
        found["silenced"] = silenced(world, folder / "silenced")
        inside(world, folder / "inside")
        found["mark"] = behind(world, folder / "behind")
        try:
            gone(world, folder / "gone")
        except ValueError as error:
            raise LostRank("own") from error
    found["lost"] = str(lost.value)
    return found


@pytest.fixture(scope="module")
def found(tiny_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("behind", "gone", "silenced", "inside"):
        (folder / name).mkdir()
    return folder, on_ranks(2, scenarios, tiny_store, folder)


def test_an_error_is_everybodys_and_shown_by_the_rank_it_came_from(found):
    _, ranks = found
    assert [one["one"] for one in ranks] == [("InputError", "mine", True), ("InputError", "mine", False)]
    assert [one["all"] for one in ranks] == [("InputError", "of 0", False), ("InputError", "of 0", True)]
    assert [one["signal"] for one in ranks] == [("SignalStop", "saved", False), ("SignalStop", "saved", True)]


def test_an_error_that_cannot_be_sent_holds_nobody_up(found):
    _, ranks = found
    assert ranks[0]["unsendable"] == ("RuntimeError", "Unsendable: 1", True)
    assert ranks[1]["unsendable"] == ("Unsendable", "1", False)


def test_ranks_that_do_not_see_the_same_are_refused(found):
    folder, ranks = found
    for rank, one in enumerate(ranks):
        name, text, elsewhere = one["folder"]
        assert (name, elsewhere) == ("InputError", rank == 0)
        assert "does not see there what the leading rank writes; name a folder that all ranks share" in text
        name, text, elsewhere = one["configuration"]
        assert (name, elsewhere) == ("InputError", rank == 1)
        assert text == "rank 1: another configuration than rank 0 has; let all ranks read the same files"
    assert not (folder / "0" / "run").exists()
    assert not (folder / "1" / "run").exists()


def test_what_one_rank_alone_fails_with_is_what_all_fail_with(found):
    folder, ranks = found
    assert [one["between"] for one in ranks] == [
        ("InputError", "the reason", True),
        ("InputError", "the reason", False),
    ]
    assert [one["unread"] for one in ranks] == [
        ("InputError", "cannot be read", True),
        ("InputError", "cannot be read", False),
    ]
    assert not (folder / "unread").exists()
    for rank, (name, text, elsewhere) in enumerate(one["unwritten"] for one in ranks):
        assert (name, "No space left on device" in text, elsewhere) == ("OSError", True, rank == 1)


def test_a_log_that_cannot_be_written_ends_nobody(found):
    assert [one["silenced"] for one in found[1]] == [2, 2]


def test_a_rank_inside_of_what_all_do_is_named(found):
    log = (found[0] / "inside" / "ranks" / "0000.log").read_text()
    assert "step 14 (checkpoint): rank 1 (" in log
    assert "has not come past step 14 (checkpoint) for" in log


@pytest.mark.parametrize(("started", "goes_on"), [("", False), ("0", False), ("1", True)])
@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_fresh_counts_for_the_first_start_alone(name, started, goes_on, tiny_store, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "write_page", lambda *_: None)
    api.fit(config(tiny_store, tmp_path / "run", "train.eval_every=-1"), quiet)
    (tmp_path / "run" / "mark").touch()
    monkeypatch.setenv(name, started)
    said = []
    api.fit(config(tiny_store, tmp_path / "run", "train.eval_every=-1"), said.append, fresh=True)
    assert (tmp_path / "run" / "mark").exists() == goes_on
    assert any("the run goes on and nothing is removed" in line for line in said) == goes_on


def test_the_first_two_ranks_look_at_all_and_the_others_where_those_are_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "BEAT_S", 0.01)
    (tmp_path / "ranks").mkdir()
    cpu = torch.device("cpu")
    watches = [watch.Watch(World(cpu, rank, 5), tmp_path, 60) for rank in range(5)]
    for one in watches:
        one.beat()
    found = watches[4].find()
    assert found is not None
    assert found[0] == [0, 1, 2, 3]
    watches[1].end = "lost"
    watches[1].beat()
    assert watches[4].find() is None
    text = watches[0].lost(RuntimeError("gloo/")).args[0]
    assert text.endswith("it has no checkpoint yet: the same command starts over")


def test_the_rank_that_others_wait_for_is_named_and_the_stacks_are_kept(found):
    folder, _ = found
    log, own = ((folder / "behind" / "ranks" / f"000{rank}.log").read_text() for rank in (0, 1))
    assert "step 12 (count): rank 1 (" in log
    assert "has not come past step 12 (data) for" in log
    assert "in sum" in log
    assert "in behind" in own
    for rank, text in enumerate((log, own)):
        assert f"torch {torch.__version__}" in text.splitlines()[0]
        assert f"warning: rank {rank} is told" in text
        assert text.splitlines()[-1].endswith("ended: done")


def test_a_rank_that_fails_is_named_by_those_that_lose_it(found):
    folder, ranks = found
    assert "rank 1 (" in ranks[0]["lost"]
    assert "ended: ValueError: this one alone; the logs are in" in ranks[0]["lost"]
    assert "ended: lost" in (folder / "gone" / "ranks" / "0000.log").read_text()


def test_a_mark_costs_nothing(found):
    assert all(one["mark"] < 50e-6 for one in found[1])


HERE = Beat(0, "host", 10, count=5, passed=40, step=7, phase="count", waited_s=65)


@pytest.mark.parametrize(
    ("before", "now", "ranks", "line"),
    [
        ({}, {"passed": 39, "phase": "data"}, [1], "has not come past step 7 (data) for 65 s"),
        ({"count": 6}, {"passed": 39}, [1], "gives no sign of life after step 7 (count)"),
        ({}, {"end": "OSError: no"}, [1], "ended: OSError: no"),
        ({}, {"end": "lost"}, [], "all ranks live, at step 7 (count)"),
        ({}, {}, [], "all ranks live, at step 7 (count)"),
    ],
)
def test_blame(before, now, ranks, line):
    first, other = replace(HERE, count=4), replace(HERE, rank=1, pid=11)
    found, text = blame([first, replace(other, **{"count": 4, **before, **({"passed": 39} if before else {})})],
                        [HERE, replace(other, **{"count": 6, **now})])  # fmt: skip
    assert found == ranks
    assert line in text
    assert ("rank 1 (host, process 11) " in text) == bool(ranks)


def test_many_ranks_behind_are_counted():
    now = [HERE, *(replace(HERE, rank=rank, count=9, passed=1) for rank in range(1, 9)), None]
    found, text = blame([None] * 10, now)
    assert found == list(range(1, 9))
    assert text.endswith("and 5 ranks more")


def test_half_an_environment_is_refused(monkeypatch):
    assert launched() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="RANK=nothing and RANK, MASTER_ADDR, MASTER_PORT is missing"):
        launched()
    for name, value in {"RANK": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="WORLD_SIZE=2 says that there are several ranks, but RANK=2; start"):
        launched()
    monkeypatch.setenv("RANK", "1")
    assert launched() == (1, 2)
