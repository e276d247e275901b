"""`seedbed bench` as it is called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import TINY

ROOT = Path(__file__).parent.parent.parent
CONFIG = ROOT / "recipes" / "cpu.yaml"
RANDOM = [*TINY, "data.store=null", "model.vocab_size=300"]


def test_one_screen_for_people(seedbed):
    code, out, err = seedbed("bench", CONFIG, *RANDOM, "--steps", 2)
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 140
    for part in ("tokens/s", "of the peak", "optimizer", "activations", "most at once", "backward", "MFLOP a token"):
        assert part in out
    assert "random tokens" in err


def test_one_json_document_of_a_store(seedbed, tiny_store):
    overrides = [*TINY, f"data.store={tiny_store}"]
    code, out, err = seedbed("bench", CONFIG, *overrides, "--steps", 2, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert len(found["seconds"]) == 2
    assert found["flops_a_step"] == found["flops_a_token"] * found["tokens"] == found["flops_a_token"] * 4 * 32
    assert found["tokens_per_s"] == pytest.approx(2 * found["tokens"] / sum(found["seconds"]))
    assert 0 < found["peak_share"] < 10
    assert {"parameters", "gradients", "optimizer", "activations", "loss"} == found["memory"].keys()
    assert "random tokens" not in err


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["model.vocab_size=null"], "neither data.store nor model.vocab_size"),
        (["data.store=/nowhere"], "/nowhere"),
        (["train.compile=maybe"], "train.compile"),
    ],
)
def test_wrong_input(seedbed, overrides, named):
    code, out, err = seedbed("bench", CONFIG, *RANDOM, *overrides)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_of_two_ranks_one_speaks():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seedbed"]
    done = subprocess.run(
        [*torchrun, "bench", str(CONFIG), *RANDOM, "--steps", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "USDT" not in done.stderr
    found = json.loads(done.stdout)
    assert found["ranks"] == 2
    assert found["communication"] > 0
