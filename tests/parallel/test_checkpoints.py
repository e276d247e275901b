"""Checkpoints of several ranks: written as shards or whole, read back on any number of them, bit by bit."""

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from tiny import config
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import ProcessExitedException
from trainings import digest

from seedbed.api import load
from seedbed.errors import GuardStop, InputError
from seedbed.files.atomic import COMMIT, folder_damage, listed
from seedbed.files.safetensors import Tensors, part_files, weight_files
from seedbed.files.steps import standing
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.init import initialize_
from seedbed.init.sharding import read_whole
from seedbed.model import Decoder
from seedbed.parallel.world import World, open_world
from seedbed.train import writing
from seedbed.train.checkpoint import newest_checkpoint
from seedbed.train.loop import Job, train_step
from seedbed.train.metrics import Metrics, read_metrics
from seedbed.train.saver import Saver
from seedbed.train.setup import resolve, start
from seedbed.train.whole import average, merge

CPU = World(torch.device("cpu"))
ODD = ("train.batch_size=8", "model.attention.n_heads=1", "model.d_model=6")
"""Rows that four ranks do not divide: two for each of the first three, none for the last."""


def job_at(run: Path, store: Path, strategy: str, world: World, newest: Path | None = None, *more: str) -> Job:
    run.mkdir(exist_ok=True)
    chosen, opened = resolve(config(store, run, f"parallel.strategy={strategy}", *ODD, *more))
    return start(chosen, run, opened, newest, world)


def bits(job: Job) -> str:
    """Hash of all weights and of all the optimizer's state."""
    state = job.model.state_dict() | job.optimizers.state_dict()
    return digest(*(read_whole(state[name]) for name in sorted(state)))


def save(job: Job, metrics: Metrics | None = None) -> Path:
    with Saver(job, metrics or Metrics(None, 0, [])) as saver:
        return saver.save()


def refused(job: Job) -> str:
    try:
        save(job)
    except (InputError, GuardStop) as error:
        return f"{type(error).__name__}: {error}"
    return "saved"


def steps(job: Job, count: int) -> str:
    for _ in range(count):
        train_step(job)
    return bits(job)


def on_two(store: Path, folder: Path, whole: Path) -> dict[str, str]:
    found = {}
    with open_world("cpu", 60) as world:
        for strategy in ("ddp", "fsdp"):
            found[f"whole to two {strategy}"] = bits(job_at(folder / "read", store, strategy, world, whole))
        # saved in a thread while steps go on, and at once
        for name, beside in (("beside", "true"), ("at once", "false")):
            setting = f"train.async_checkpoints={beside}"
            job = job_at(folder / name, store, "fsdp", world, whole, setting)
            found[f"{name} saved"] = steps(job, 2)
            metrics = Metrics(job.run_dir if world.leads else None, 0, [])
            with Saver(job, metrics) as saver:
                path = saver.save()
                found[f"{name} further"] = steps(job, 2)
            job = job_at(folder / name, store, "fsdp", world, path, setting)
            found[f"{name} resumed"], found[f"{name} resumed further"] = bits(job), steps(job, 2)
        found["two fsdp to two ddp"] = bits(job_at(folder / "read", store, "ddp", world, path))
        found |= _failures(job_at(folder / "harmed", store, "fsdp", world, whole), world)
    return found


def _failures(job: Job, world: World) -> dict[str, str]:
    """What a rank says whose own shards can be written, when those of the other cannot."""
    found, limits = {}, resource.getrlimit(resource.RLIMIT_FSIZE)
    save(job)
    job.step += 1
    if world.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    found["too large"] = refused(job)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    weight = job.optimizers.state_dict()["layers.0.mlp.down.weight.momentum"]
    assert isinstance(weight, DTensor)
    if world.rank == 1:
        weight.to_local()[0, 0] = torch.nan
    found["not finite"] = refused(job)
    return found


def on_four(store: Path, folder: Path, shards: Path) -> dict[str, str]:
    with open_world("cpu", 60) as world:
        job = job_at(folder / "four", store, "fsdp", world, shards)
        found = {"two fsdp to four fsdp": bits(job)}
        save(job)
        return found


@pytest.fixture(scope="module")
def whole(tiny_store, tmp_path_factory) -> tuple[Path, str]:
    """A checkpoint of one rank after two steps, and its bits."""
    job = job_at(tmp_path_factory.mktemp("one") / "run", tiny_store, "ddp", CPU)
    expected = steps(job, 2)
    return save(job), expected


@pytest.fixture(scope="module")
def two(tiny_store, tmp_path_factory, whole) -> tuple[Path, list[dict[str, str]]]:
    folder = tmp_path_factory.mktemp("two")
    return folder, on_ranks(2, on_two, tiny_store, folder, whole[0])


def test_two_ranks_read_and_write(two, whole):
    _, ranks = two
    assert ranks[0] == ranks[1]
    (found, _), (_, expected) = ranks, whole
    assert found["whole to two ddp"] == found["whole to two fsdp"] == expected
    for name in ("beside", "at once"):
        assert found[f"{name} saved"] == found[f"{name} resumed"] != found[f"{name} further"]
        assert found[f"{name} further"] == found[f"{name} resumed further"]
    assert found["beside saved"] == found["at once saved"] == found["two fsdp to two ddp"]
    assert found["beside further"] == found["at once further"]
    assert found["too large"].startswith("InputError: ")
    assert "cannot be written ([Errno 27] File too large)" in found["too large"]
    assert found["not finite"].startswith("GuardStop: step 3: layers.0.mlp.down.weight.momentum is not finite")


def test_a_failed_save_leaves_nothing(two):
    folder, _ = two
    assert [path.name for path in (folder / "harmed" / "checkpoints").iterdir()] == ["step_00000002"]


def test_the_folder_of_shards(two):
    """Each file is listed; nothing is a pickle; both ways to save give the same bytes."""
    folder, _ = two
    paths = [folder / name / "checkpoints" / "step_00000004" for name in ("beside", "at once")]
    texts = [*listed(paths[0])]
    shards = [
        f"{part}/shard-0000{rank}-model-00001-of-00001.safetensors"
        for part in ("model", "optimizer")
        for rank in (1, 2)
    ]
    assert set(shards) < set(texts)
    assert {Path(name).suffix for name in texts} <= {".safetensors", ".json", ".yaml"}
    assert sorted([*texts, COMMIT]) == sorted(
        p.relative_to(paths[0]).as_posix() for p in paths[0].rglob("*") if p.is_file()
    )
    assert folder_damage(paths[0]) is None
    first, second = (Tensors(weight_files(path)) for path in paths)
    assert all(torch.equal(first[name], second[name]) for name in first)
    state = json.loads((paths[0] / "state.json").read_text())
    assert (state["format_version"], state["shards"], state["step"]) == (2, 2, 4)


def test_a_missing_last_shard_is_named(two, tmp_path):
    folder, _ = two
    shutil.copytree(folder / "beside" / "checkpoints" / "step_00000004", tmp_path / "c")
    gone = tmp_path / "c" / "model" / "shard-00002-model-00001-of-00001.safetensors"
    gone.unlink()
    with pytest.raises(InputError, match=f"{gone.name}: missing; give all files"):
        Tensors(weight_files(tmp_path / "c"))


def test_the_seconds_of_a_save_are_told(two):
    folder, _ = two
    (row,) = read_metrics(folder / "beside")
    assert (row["kind"], row["step"]) == ("checkpoint", 4)
    tensors = Tensors(part_files(folder / "beside" / "checkpoints" / "step_00000004", "optimizer"))
    assert row["bytes"] > sum(tensors[name].nbytes for name in tensors)
    assert row["blocked_seconds"] > 0
    assert row["written_seconds"] > 0


@pytest.mark.slow
def test_four_ranks_then_one(two, tiny_store, tmp_path):
    folder, (found, _) = two
    ranks = on_ranks(4, on_four, tiny_store, tmp_path, folder / "beside" / "checkpoints" / "step_00000004")
    expected = found["beside saved"]
    assert [one["two fsdp to four fsdp"] for one in ranks] == [expected] * 4
    path, notes = newest_checkpoint(tmp_path / "four")
    assert path is not None
    assert notes == []
    assert len(part_files(path, "model")) == 4
    job = job_at(tmp_path / "one", tiny_store, "ddp", CPU, path)
    assert bits(job) == expected
    again = save(job)
    assert (again / "model.safetensors").is_file()
    assert bits(job_at(tmp_path / "one", tiny_store, "ddp", CPU, again)) == expected


def test_every_file_of_shards_damaged_in_turn_falls_back(two):
    folder, _ = two
    path = folder / "beside" / "checkpoints" / "step_00000004"
    for name in (*listed(path), COMMIT):
        content = (path / name).read_bytes()
        (path / name).unlink()
        assert newest_checkpoint(folder / "beside")[0] is None
        assert standing(folder / "beside") == "it has no whole checkpoint"
        (path / name).write_bytes(content[:-1])
        newest, (note,) = newest_checkpoint(folder / "beside")
        assert newest is None
        assert note.startswith(f"{path}: passed over: ")
        assert name in note
        (path / name).write_bytes(content)
    assert newest_checkpoint(folder / "beside")[0] == path


def killed_inside(store: Path, folder: Path) -> None:
    with open_world("cpu", 60) as world:
        job = job_at(folder, store, "fsdp", world)
        steps(job, 1)
        save(job)
        steps(job, 1)
        if world.rank == 1:
            real = writing.fingerprint
            writing.fingerprint = lambda path: os.kill(os.getpid(), signal.SIGKILL) or real(path)
        with Saver(job, Metrics(None, 0, [])) as saver:
            saver.save()
            steps(job, 3)


def test_a_rank_killed_inside_a_save(tiny_store, tmp_path):
    with pytest.raises(ProcessExitedException, match="SIGKILL"):
        on_ranks(2, killed_inside, tiny_store, tmp_path)
    path, notes = newest_checkpoint(tmp_path)
    assert path is not None
    assert path.name == "step_00000001"
    assert notes == []
    job = job_at(tmp_path, tiny_store, "ddp", CPU, path)
    steps(job, 1)
    save(job)
    assert sorted(one.name for one in (tmp_path / "checkpoints").iterdir()) == ["step_00000001", "step_00000002"]


FULL = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from ranks import on_ranks
from test_checkpoints import fill
if __name__ == "__main__":
    print(*on_ranks(2, fill, Path({store!r}), Path({disk!r})), sep="\\n")
"""


def fill(store: Path, disk: Path) -> str:
    """Save until the disk is full, as if its room had vanished after it was looked at."""
    writing.shutil.disk_usage = lambda _: writing.shutil._ntuple_diskusage(0, 0, 10**9)
    with open_world("cpu", 60) as world:
        job = job_at(disk / "run", store, "fsdp", world, None, "train.keep_checkpoints=100")
        for job.step in range(1, 100):
            if (told := refused(job)) != "saved":
                newest, notes = newest_checkpoint(job.run_dir)
                assert newest is not None
                left = sorted(path.name for path in newest.parent.iterdir())
                assert (newest.name, left[-1], notes) == (f"step_{job.step - 1:08d}", newest.name, [])
                return told
    return "never full"


@pytest.mark.slow
def test_a_full_disk(disk, tiny_store, tmp_path):
    place, run = disk
    script = tmp_path / "fill.py"
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script.write_text(FULL.format(paths=paths, store=str(tiny_store), disk=str(place)))
    first, second = run("1m", f"exec {sys.executable} {script}").stdout.splitlines()
    assert first == second
    assert "a checkpoint needs 1." in first
    assert "MB free; make room" in first


def test_shards_are_read_by_all_that_reads_weights(two, tiny_store, tmp_path):
    """As the whole weights that are merged from them: loading, analysis, the law reuse, a mean."""
    folder, (found, _) = two
    shards = folder / "beside" / "checkpoints" / "step_00000004"
    merge(shards, tmp_path / "whole")
    shutil.copytree(shards, tmp_path / "in place")
    merge(tmp_path / "in place", tmp_path / "in place")
    assert listed(tmp_path / "in place") == listed(tmp_path / "whole")
    assert bits(job_at(tmp_path / "resumed", tiny_store, "ddp", CPU, tmp_path / "whole")) == found["beside saved"]
    whole = Tensors(weight_files(tmp_path / "whole"))
    loaded = load(shards).model.state_dict()
    assert loaded.keys() == whole.keys()
    opened = open_checkpoint(shards)
    reused = Decoder(load(shards).config.model)
    initialize_(reused, "reuse", checkpoint=str(shards))
    drawn = reused.state_dict()
    average([shards, tmp_path / "whole"], tmp_path / "mean")
    mean = load(tmp_path / "mean").model.state_dict()
    for name, tensor in whole.items():
        assert torch.equal(loaded[name], tensor)
        assert torch.equal(opened.read(name), tensor)
        assert torch.equal(drawn[name], tensor) == (name != "embed.weight")  # which the law draws
        assert torch.equal(mean[name], tensor)
