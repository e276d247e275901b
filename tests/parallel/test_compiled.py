"""Compiled models, alone and on ranks, train as eager ones do. Minutes long: each is compiled."""

from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from tiny import config, quiet, weights
from trainings import arm, training

from seedbed.api import fit
from seedbed.parallel.world import World, open_world
from seedbed.parallel.wrap import COMPILE_FROM, compiles

CPU = torch.device("cpu")
STEPS = 6
ARMS = [
    (strategy, recompute, compiled)
    for strategy in ("ddp", "fsdp")
    for recompute in ("none", "selective", "block")
    for compiled in ("false", "true")
]


def compiled_trainings(store: Path) -> dict[tuple[str, str, str], list[float]]:
    with open_world("cpu", 300) as world:
        return {
            one: training(store, arm(one[0], f"parallel.recompute={one[1]}", f"train.compile={one[2]}"), world, STEPS)
            .losses
            for one in ARMS
        }  # fmt: skip


@pytest.mark.slow
def test_two_ranks_compiled_are_two_ranks(tiny_store):
    losses, _ = on_ranks(2, compiled_trainings, tiny_store)
    for strategy, recompute, _ in ARMS[::2]:
        eager, compiled = (losses[strategy, recompute, way] for way in ("false", "true"))
        assert compiled == pytest.approx(eager, abs=1e-5, rel=0)
        assert eager[-1] < eager[0] - 0.1
        assert compiled != eager  # else nothing was compiled


@pytest.mark.slow
def test_a_run_goes_on_compiled_or_not_under_the_same_names(tiny_store, tmp_path):
    schedule = "optim.schedule={kind: constant, warmup: 0}"  # no rate depends on where a part of the run ends
    plain = fit(config(tiny_store, tmp_path / "b", schedule), quiet)
    for steps, way in ((2, "true"), (4, "false"), (6, "true")):
        mixed = fit(config(tiny_store, tmp_path / "c", schedule, f"train.steps={steps}", f"train.compile={way}"), quiet)
    assert weights(tmp_path / "b", 6).keys() == weights(tmp_path / "c", 6).keys()
    losses = [[row["loss"] for row in run.metrics if row["kind"] == "train"] for run in (plain, mixed)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_auto_compiles_long_runs_on_a_gpu_of_models_that_are_not_split(tiny_store):
    cuda = torch.device("cuda")
    alone, ranks = World(cuda), World(cuda, size=2)

    def chosen(world: World, *overrides: str) -> bool:
        return compiles(config(tiny_store, Path("unused"), "train.compile=auto", *overrides), world)

    long = f"train.steps={COMPILE_FROM}"
    assert chosen(alone, long)
    assert chosen(ranks, long)
    assert chosen(alone, long, "parallel.strategy=fsdp")
    assert not chosen(ranks, long, "parallel.strategy=fsdp")
    assert not chosen(alone, f"train.steps={COMPILE_FROM - 1}")
    assert not chosen(World(CPU), long)
    assert chosen(World(CPU), "train.compile=true")
    assert not chosen(alone, long, "train.compile=false")
