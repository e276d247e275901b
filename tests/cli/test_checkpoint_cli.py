import json
import shutil

import pytest
import torch
from tiny import config, quiet, same, weights

from seedbed.api import fit, load
from seedbed.errors import InputError
from seedbed.files.lock import folder_lock
from seedbed.files.safetensors import part_files
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.train.setup import checkpoint_of


@pytest.fixture(scope="module")
def trained(tiny_store, tmp_path_factory):
    """A run with checkpoints after 2, 4 and 6 steps, of which two were evaluated."""
    run = tmp_path_factory.mktemp("run") / "r"
    told = ["train.checkpoint_every=2", "train.keep_checkpoints=9", "train.eval_every=3", "optim.lr=1e-3"]
    fit(config(tiny_store, run, *told), quiet)
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run that a test may harm."""
    shutil.copytree(trained, tmp_path / "r")
    return tmp_path / "r"


def step(run, number):
    return run / "checkpoints" / f"step_{number:08d}"


def test_list(seedbed, run):
    code, out, _ = seedbed("checkpoint", "list", run, "--json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["step"], row["shards"], row["damage"]) for row in rows] == [(6, 1, None), (4, 1, None), (2, 1, None)]
    assert [row["nats_per_token"] is None for row in rows] == [False, True, True]
    assert rows[0]["megabytes"] > 0.1
    (step(run, 4) / "state.json").write_text("{")
    code, out, _ = seedbed("checkpoint", "list", run)
    assert code == 0
    assert "state.json has 1 bytes" in out


def test_verify_says_all_that_is_damaged(seedbed, run):
    assert seedbed("checkpoint", "verify", run)[0] == 0
    assert seedbed("checkpoint", "verify", step(run, 4))[0] == 0
    file = step(run, 4) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    (step(run, 4) / "receipt.json").unlink()
    code, out, err = seedbed("checkpoint", "verify", run, "--json")
    assert code == 2
    damage = {row["checkpoint"][-1]: row["damage"] for row in json.loads(out)}
    assert damage["2"] == damage["6"] == []
    assert damage["4"] == ["the content of model.safetensors changed (SHA-256 differs)", "receipt.json is missing"]
    assert "1 of 3 checkpoints are damaged" in err


def test_prune(seedbed, run):
    (step(run, 6) / "commit.json").unlink()
    code, out, _ = seedbed("checkpoint", "prune", run, "--keep", 1, "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, {"removed": [], "would_remove": [str(step(run, 2))]})
    assert step(run, 2).is_dir()
    assert seedbed("checkpoint", "prune", run, "--keep", 1)[1] == f"removed {step(run, 2)}\n"
    assert sorted(path.name[-1] for path in (run / "checkpoints").iterdir()) == ["4", "6"]
    (step(run, 4) / "commit.json").unlink()
    assert seedbed("checkpoint", "prune", run, "--keep", 1)[0] == 2  # none is whole, so none goes
    assert step(run, 4).is_dir()


def test_average(seedbed, run, tiny_store, tmp_path):
    out = tmp_path / "mean"
    assert seedbed("checkpoint", "average", step(run, 2), step(run, 6), "-o", out)[0] == 0
    first, last = weights(run, 2), weights(run, 6)
    mean = load(out).model.state_dict()
    assert mean.keys() == first.keys()
    for name in mean:
        assert torch.equal(mean[name], ((first[name].double() + last[name].double()) / 2).float())
    assert not same(dict(mean), first)
    fitted = fit(config(tiny_store, tmp_path / "on", f"train.init_from={out}", "train.steps=2"), quiet)
    assert fitted.summary.steps == 2
    told = seedbed("checkpoint", "list", out)[1]
    assert "weights only" in told
    assert "Errno" not in told
    assert json.loads(seedbed("checkpoint", "list", out, "--json")[1])[0]["damage"] is None
    assert seedbed("checkpoint", "average", step(run, 2), step(run, 2), "-o", out)[0] == 0  # in its place
    assert same(dict(load(out).model.state_dict()), first)


def test_an_average_of_what_is_not_alike_is_refused(seedbed, run, tiny_store, tmp_path):
    fit(config(tiny_store, tmp_path / "other", "train.steps=2", "model.attention.scale=0.5"), quiet)
    for others, reason in (
        ([tmp_path / "other"], "has another model.attention.scale (0.5 instead of "),
        ([], "two checkpoints at least"),
    ):
        code, _, err = seedbed("checkpoint", "average", run, *others, "-o", tmp_path / "mean")
        assert code == 2
        assert reason in err
        assert not (tmp_path / "mean").exists()
    shutil.copytree(step(run, 2), tmp_path / "mine")
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    code, _, err = seedbed("checkpoint", "average", step(run, 2), step(run, 4), "-o", tmp_path / "mine")
    assert code == 2
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_merging_a_whole_one_gives_the_same_tensors(seedbed, run, tmp_path):
    assert seedbed("checkpoint", "merge", step(run, 4), "-o", tmp_path / "whole")[0] == 0
    trained, merged = open_checkpoint(step(run, 4)), open_checkpoint(tmp_path / "whole")
    assert all(torch.equal(trained.read(fact.name), merged.read(fact.name)) for fact in trained.facts)
    for part in ("model", "optimizer"):
        (file,) = part_files(tmp_path / "whole", part)
        assert file.stat().st_size == pytest.approx((step(run, 4) / file.name).stat().st_size, abs=1000)
    assert checkpoint_of(tmp_path / "whole") == tmp_path / "whole"
    with pytest.raises(InputError, match="not a folder made here"):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "a").write_text("")
        from seedbed.train.whole import merge

        merge(step(run, 4), tmp_path / "mine")


def test_merging_in_place(seedbed, run):
    """The run goes on from what stands there then; while it is trained nobody merges."""
    before = weights(run, 6)
    with folder_lock(run):
        code, _, err = seedbed("checkpoint", "merge", run)
    assert code == 2
    assert "in use by process" in err
    code, out, _ = seedbed("checkpoint", "merge", run, "--json")
    assert (code, json.loads(out)["checkpoint"]) == (0, str(step(run, 6)))
    assert same(weights(run, 6), before)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [step(run, n).name for n in (2, 4, 6)]
    assert seedbed("checkpoint", "verify", run)[0] == 0
