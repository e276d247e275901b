import errno
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from seedbed.config import Config
from seedbed.config.load import from_tree
from seedbed.data.loader import Loader
from seedbed.errors import GuardStop, InputError
from seedbed.facts.table import parameter_facts
from seedbed.files.atomic import atomic_folder
from seedbed.files.safetensors import part_files
from seedbed.files.steps import standing
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers
from seedbed.parallel.world import World
from seedbed.train import writing
from seedbed.train.checkpoint import (
    check_whole,
    load_into,
    newest_checkpoint,
    read_checkpoint,
    restore_rng,
)
from seedbed.train.loop import Job
from seedbed.train.metrics import Metrics
from seedbed.train.retention import prune
from seedbed.train.run import read_config
from seedbed.train.saver import Saver

RUN_V1 = Path(__file__).parents[1] / "fixtures" / "run_v1"
FILES = [
    "commit.json", "config.yaml", "model.safetensors", "optimizer.safetensors", "receipt.json", "state.json",
    "tokenizer/tokenizer.json",
]  # fmt: skip


class Position(Loader):
    """Stands for a loader, without data."""

    def __init__(self):
        pass

    def state(self):
        return {"position": 8}


def make_job(folder, *overrides):
    tiny = ["model.vocab_size=20", "model.d_model=8", "model.n_layers=1", "model.attention.n_heads=2"]
    config = Config.load(None, [*tiny, "model.max_seq_len=8", *overrides])
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    (folder / "run").mkdir()
    model = Decoder(config.model)
    initialize_(model, "normal")
    optimizers = build_optimizers(model, parameter_facts(model), config.optim)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step()
    receipt = {"format_version": 1, "law": "normal"}
    world = World(torch.device("cpu"))
    return Job(config, folder / "run", model, model, optimizers, Position(), world, receipt, tokenizer)


@pytest.fixture()
def job(tmp_path):
    return make_job(tmp_path)


def save_at(job, *steps):
    paths = []
    job.config = with_train(job.config, keep_checkpoints=1000)
    with Saver(job, Metrics(None, 0, [])) as saver:
        for step in steps:
            job.step, job.tokens = step, 10 * step
            paths.append(saver.save())
    return paths


def with_train(config, **changes):
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def names(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_what_is_saved_is_read_back(job):
    job.seconds = 1.25
    torch.manual_seed(3)
    (path,) = save_at(job, 7)
    expected = torch.rand(4)
    assert path == job.run_dir / "checkpoints" / "step_00000007"
    assert sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()) == FILES
    found = read_checkpoint(path)
    assert (found.step, found.tokens, found.seconds) == (7, 70, 1.25)
    assert found.loader == {"position": 8}
    assert found.receipt == job.receipt
    assert read_config(path) == job.config
    own = job.optimizers.state_dict()
    optimizer = load_file(path / "optimizer.safetensors")
    assert optimizer.keys() == own.keys()
    assert all(torch.equal(optimizer[name], own[name]) for name in own)
    weights = load_file(path / "model.safetensors")
    assert weights.keys() == job.model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in job.model.state_dict().items())
    torch.manual_seed(99)
    restore_rng(found.rng)
    assert torch.equal(torch.rand(4), expected)
    modes = {entry.stat().st_mode for entry in path.iterdir() if entry.is_file() and entry.name != "commit.json"}
    assert len(modes) == 1  # whoever may read one file may read them all


def test_names_carry_no_wrapper_and_a_tied_tensor_is_saved_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lm_head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.lm_head.weight = self.embed.weight

    model = Tied()
    assert list(writing.named_weights(model)) == ["embed.weight"]
    assert list(writing.named_weights(nn.DataParallel(model))) == ["embed.weight"]
    job = make_job(tmp_path, "model.tied=true")
    (path,) = save_at(job, 1)
    assert "embed.weight" in load_file(path / "model.safetensors")
    assert "head.weight" not in load_file(path / "model.safetensors")


def test_the_newest_is_found_by_number(job):
    save_at(job, 9, 100_000_000, 99_999_999)
    path, notes = newest_checkpoint(job.run_dir)
    assert path is not None
    assert path.name == "step_100000000"
    assert notes == []
    assert newest_checkpoint(job.run_dir / "nothing here") == (None, [])


@pytest.mark.parametrize("harm", ["deleted", "truncated", "changed"])
@pytest.mark.parametrize("name", FILES)
def test_each_file_damaged_in_turn_falls_back_and_says_so(job, name, harm):
    old, new = save_at(job, 1, 2)
    victim = new / name
    content = victim.read_bytes()
    if harm == "deleted":
        victim.unlink()
    elif harm == "truncated":
        victim.write_bytes(content[:-1])
    elif name == "commit.json":
        victim.write_bytes(content.replace(b"sha256", b"sha255"))
    else:
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    path, notes = newest_checkpoint(job.run_dir)
    assert path == old
    assert len(notes) == 1
    assert notes[0].startswith(f"{new}: passed over: ")
    assert name in notes[0]
    with pytest.raises(InputError, match="step_00000002: .*give another checkpoint"):
        check_whole(new)
    prune(job.run_dir, 1, old, False)  # a damaged later one does not count
    assert newest_checkpoint(job.run_dir)[0] == old


def test_a_run_with_damaged_checkpoints_only_has_none(job):
    for path in save_at(job, 1, 2):
        (path / "commit.json").unlink()
    path, notes = newest_checkpoint(job.run_dir)
    assert path is None
    assert [note.split(": passed over: ")[0][-1] for note in notes] == ["2", "1"]


def test_prune_keeps_the_newest_ones(job):
    newest = save_at(job, 1, 2, 3, 10)[-1]
    removed = prune(job.run_dir, 2, newest, False)
    assert names(job.run_dir) == ["step_00000003", "step_00000010"]
    assert [path.name for path in removed] == ["step_00000002", "step_00000001"]
    assert prune(job.run_dir, 2, newest, False) == []


def test_prune_removes_what_killed_saves_left(job):
    (path,) = save_at(job, 4)
    (path.parent / ".partial-1-step_00000003").mkdir()
    (path.parent / ".partial-1-step_00000003" / "model.safetensors").write_bytes(b"half")
    prune(job.run_dir, 2, path, False)
    assert names(job.run_dir) == ["step_00000004"]


def test_a_checkpoint_that_cannot_be_removed_is_not_told_as_removed(job, monkeypatch):
    *_, newest = save_at(job, 1, 2, 3)
    real = Path.rename

    def refused(path, target):
        if path.name == "step_00000002":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.warns(UserWarning, match=r"step_00000002: cannot be removed \(Permission denied\)"):
        removed = prune(job.run_dir, 1, newest, False)
    assert [path.name for path in removed] == ["step_00000001"]
    assert names(job.run_dir) == ["step_00000002", "step_00000003"]


def test_the_last_checkpoint_is_a_whole_one(job):
    assert standing(job.run_dir) == "it has no checkpoint yet"
    old, new = save_at(job, 1, 2)
    assert standing(job.run_dir) == f"the last checkpoint is {new}"
    (new / "optimizer.safetensors").write_bytes(b"half")
    assert standing(job.run_dir) == f"the last checkpoint is {old}"
    (old / "commit.json").unlink()
    assert standing(job.run_dir) == "it has no whole checkpoint"


def test_nothing_that_is_not_finite_is_saved(job):
    save_at(job, 1)
    with torch.no_grad():
        job.model.embed.weight[3, 1] = math.inf
    with pytest.raises(GuardStop, match=r"step 2: embed\.weight is not finite"):
        save_at(job, 2)
    with torch.no_grad():
        job.model.embed.weight[3, 1] = 0
    job.optimizers.state_dict()["embed.weight.exp_avg"][0, 0] = math.nan
    with pytest.raises(GuardStop, match=r"embed\.weight\.exp_avg is not finite"):
        save_at(job, 3)
    assert names(job.run_dir) == ["step_00000001"]


def test_a_newer_format_is_refused_not_passed_over(job):
    save_at(job, 1)
    (path,) = save_at(job, 2)
    state = json.loads((path / "state.json").read_text())
    with atomic_folder(job.run_dir / "checkpoints" / "step_00000003") as folder:
        shutil.copytree(path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("commit.json"))
        (folder / "state.json").write_text(json.dumps({**state, "format_version": 3}))
    with pytest.raises(InputError, match=r"state\.json: format_version 3, this release reads 1 and 2; use"):
        newest_checkpoint(job.run_dir)
    with pytest.raises(InputError, match="format_version 3"):
        read_checkpoint(job.run_dir / "checkpoints" / "step_00000003")


def test_saving_a_step_again_replaces_it(job):
    save_at(job, 1)
    with torch.no_grad():
        job.model.embed.weight.zero_()
    (path,) = save_at(job, 1)
    assert not load_file(path / "model.safetensors")["embed.weight"].any()
    assert names(job.run_dir) == ["step_00000001"]


def test_no_room_on_the_disk_is_seen_before_writing(job, monkeypatch):
    save_at(job, 1)
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 500_000))
    with pytest.raises(InputError, match=r"step_00000002: a checkpoint needs 1\.1 MB, its disk has 0\.5 MB free; .*"):
        save_at(job, 2)
    assert names(job.run_dir) == ["step_00000001"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_while_saving_leaves_nothing_behind(job, monkeypatch, error):
    save_at(job, 1)
    save_file = writing.save_file

    def fill(tensors, path):
        if path.name == "optimizer.safetensors":
            path.write_bytes(b"half")
            raise error
        save_file(tensors, path)

    monkeypatch.setattr(writing, "save_file", fill)
    with pytest.raises(InputError, match="needs .* MB, its disk has .* MB free; make room"):
        save_at(job, 2)
    assert names(job.run_dir) == ["step_00000001"]
    assert newest_checkpoint(job.run_dir)[0] == job.run_dir / "checkpoints" / "step_00000001"


def test_other_errors_of_the_disk_are_not_called_a_full_one(job, monkeypatch):
    def fail(tensors, path):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(writing, "save_file", fail)
    with pytest.raises(
        InputError, match=r"step_00000001: cannot be written \(\[Errno 13\] no\); mend that .* no checkpoint"
    ):
        save_at(job, 1)
    assert names(job.run_dir) == []


TMPFS = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_checkpoint import InputError, make_job, names, newest_checkpoint, save_at, writing
job = make_job(Path({disk!r}))
writing.shutil.disk_usage = lambda _: writing.shutil._ntuple_diskusage(0, 0, 10**9)  # as if room vanished
for step in range(1, 100):
    try:
        save_at(job, step)
    except InputError as error:
        assert "MB free" in str(error), error
        assert newest_checkpoint(job.run_dir)[0].name == f"step_{{step - 1:08d}}"
        assert names(job.run_dir)[-1] == f"step_{{step - 1:08d}}", names(job.run_dir)
        print("stopped at", step)
        break
"""


def test_a_tiny_disk_really_filled(disk, tmp_path):
    place, run = disk
    script = tmp_path / "fill.py"
    script.write_text(TMPFS.format(tests=str(Path(__file__).parent), disk=str(place)))
    said = run("256k", f"exec {sys.executable} {script}").stdout
    assert int(said.rsplit(maxsplit=1)[-1]) > 1


def test_a_run_of_format_version_1_is_still_read(tmp_path):
    """The folder is frozen (tests/fixtures/make_run_v1.sh made it): a release that cannot read it breaks its users."""
    from seedbed.api import load  # not at the top: the subprocess above would import it too

    path, notes = newest_checkpoint(RUN_V1)
    assert path is not None
    assert path.name == "step_00000004"
    assert notes == []
    found = read_checkpoint(path)
    assert (found.step, found.tokens, found.loader["position"]) == (4, 252, 8)
    trained = load(RUN_V1)
    optimizers = build_optimizers(trained.model, parameter_facts(trained.model), trained.config.optim)
    load_into(optimizers.state_dict(), part_files(path, "optimizer"), "")
    assert optimizers.state_dict()["embed.weight.step"] == 4
    logits = trained.model(torch.arange(1, 9)[None])  # [1, 8, V]
    expected = torch.tensor([-0.31547755, -0.13086544, -0.58757204])
    torch.testing.assert_close(logits[0, -1, :3].detach(), expected, atol=1e-5, rtol=0)
    assert logits.square().sum().item() == pytest.approx(299.71820, rel=1e-5)


def test_a_run_of_format_version_1_goes_on(tmp_path, monkeypatch):
    """With the store made anew from the same documents: the frozen position, optimizer and measures all fit."""
    from stores import Text, make_store

    from seedbed.api import fit
    from seedbed.data.tokenizer import load_tokenizer

    shutil.copytree(RUN_V1, tmp_path / "run")
    text = "Document {0} of sixty. A seed, some soil, and rain number {1}. "
    documents = [Text(str(i), text.format(i, i * i) * 4) for i in range(60)]
    make_store(
        documents, load_tokenizer(RUN_V1 / "checkpoints/step_00000004/tokenizer"), tmp_path / "store", seq_len=32
    )
    monkeypatch.chdir(tmp_path)
    config = read_config(tmp_path / "run").dump()
    config["train"] |= {"steps": 6}
    run = fit(from_tree(config, "test"))
    assert [row["step"] for row in run.metrics if row["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
