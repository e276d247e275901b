"""Two ranks judge alike, add up what they look at, and compute in bf16 what one rank does."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from tiny import config
from torch.distributed.tensor import DTensor
from trainings import arm, digest

from seedbed.init.sharding import read_whole
from seedbed.measure.gradients import DECADES
from seedbed.parallel.world import World, open_world
from seedbed.train import loop
from seedbed.train.looks import gradient_components, weight_components
from seedbed.train.metrics import read_metrics
from seedbed.train.setup import go_back, resolve, start

STRATEGIES = ("ddp", "fsdp")
BF16 = ("train.precision=bf16", "model.d_model=8", "model.attention.n_heads=1", "optim.name=adamw")
Z = ("train.z_loss=0.1", "train.precision=fp64")


def begun(store: Path, folder: Path, world: World, *overrides: str) -> loop.Job:
    chosen, opened = resolve(config(store, folder, *overrides))
    return start(chosen, folder, opened, world=world)


def guarded(store: Path, folder: Path, world: World, strategy: str, policy: str) -> dict[str, Any]:
    """A short training in which the last rank alone has a NaN for a loss in batch 2 or 3, and an infinite gradient in
    batch 5; of this rank the losses that it trained on, and where it ends."""
    told = ("train.checkpoint_every=1", "train.steps=6", "train.eval_every=-1", f"train.guard.nonfinite={policy}")
    job, trained = begun(store, folder, world, *arm(strategy, *told)), []
    last, backward, step = world.rank == world.size - 1, loop.backward, loop.train_step
    if world.leads:
        folder.mkdir(parents=True)

    def poisoned(job: loop.Job, batch: Any, n_targets: float) -> tuple[float, float]:
        loss, z_loss = backward(job, batch, n_targets)
        if last and job.loader.position == 8 * 5:
            gradient = job.model.get_parameter("layers.0.attn.qkv.weight").grad
            assert gradient is not None
            held = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            assert isinstance(held, torch.Tensor)
            held[0, 0] = math.inf
        return math.nan if last and job.loader.position == 8 * 3 else loss, z_loss

    def watched(job: loop.Job) -> dict[str, Any]:
        row = step(job)
        trained.append((row["kind"], row["step"], row["loss"], row["grad_norm"]))
        return row

    loop.backward, loop.train_step = poisoned, watched
    loop.train(job, dict, lambda: go_back(job), [])
    loop.backward, loop.train_step = backward, step
    weights = digest(*(read_whole(parameter) for parameter in job.model.parameters()))
    rows = [
        (row["action"], row["step"], row["bad_step"], row["samples"])
        for row in read_metrics(folder)
        if row["kind"] == "guard"
    ]
    return {"trained": trained, "end": (job.step, job.loader.position, weights), "rows": rows}


def looked(store: Path, world: World, strategy: str) -> dict[str, Any]:
    job = begun(store, Path("unused"), world, *arm(strategy, "train.precision=fp64"))
    batch = job.loader.next_batch()
    (n_targets,) = world.sum(int((batch.targets != -100).sum()))
    loop.backward(job, batch, n_targets)
    return gradient_components(job.model, world)


def weighed(store: Path, world: World, strategy: str) -> dict[str, Any]:
    """What is told of the weights of a fresh model, and whether they are as they were."""
    job = begun(store, Path("unused"), world, *arm(strategy, "model.attention.gate=headwise", "model.tied=true"))
    before = digest(*(read_whole(parameter) for parameter in job.model.parameters()))
    found = weight_components(job.model, world)
    return {"same": before == digest(*(read_whole(p) for p in job.model.parameters())), "found": found}


def in_bf16(store: Path, world: World, strategy: str) -> dict[str, Any]:
    """Losses of a few steps, and in which types the stream, gradients and talk between ranks are."""
    job = begun(store, Path("unused"), world, *arm(strategy, *BF16))
    streams, sent = set(), set()
    for block in job.model.layers:
        block.register_forward_hook(lambda _m, args, out: streams.update((args[0].dtype, out.dtype)))
    real = {name: getattr(dist, name) for name in ("all_gather_single", "reduce_scatter_single")}

    def spy(name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            tensors = [x for x in (*arguments, *named.values()) if isinstance(x, torch.Tensor)]
            sent.update((name, x.dtype) for x in tensors)
            return real[name](*arguments, **named)

        return call

    for name in real:
        setattr(dist, name, spy(name))
    losses = [loop.train_step(job)["loss"] for _ in range(6)]
    for name, function in real.items():
        setattr(dist, name, function)
    state = {value.dtype for value in job.optimizers.state_dict().values()}
    return {
        "losses": losses,
        "streams": streams,
        "sent": sent,
        "kept": state | {p.dtype for p in job.model.parameters()},
    }


def with_z(store: Path, world: World, strategy: str, *more: str) -> list[tuple[float, float]]:
    job = begun(store, Path("unused"), world, *arm(strategy, *Z, *more))
    return [(row["loss"], row["z_loss"]) for row in (loop.train_step(job) for _ in range(5))]


def everything(store: Path, folder: Path, strategies: tuple[str, ...]) -> dict[str, Any]:
    with open_world("cpu", 60) as world:
        return {
            f"{strategy} {name}": made
            for strategy in strategies
            for name, made in (
                ("skip", guarded(store, folder / f"skip-{strategy}", world, strategy, "skip")),
                ("rollback", guarded(store, folder / f"back-{strategy}", world, strategy, "rollback")),
                ("gradients", looked(store, world, strategy)),
                ("weights", weighed(store, world, strategy)),
                ("bf16", in_bf16(store, world, strategy)),
                ("z", with_z(store, world, strategy)),
                ("z accumulated", with_z(store, world, strategy, "train.micro_batch_size=2")),
            )
        }


@pytest.fixture(scope="module")
def alone(tiny_store, tmp_path_factory):
    return everything(tiny_store, tmp_path_factory.mktemp("alone"), ("ddp",))


@pytest.fixture(scope="module")
def ranks(tiny_store, tmp_path_factory):
    return on_ranks(2, everything, tiny_store, tmp_path_factory.mktemp("ranks"), STRATEGIES)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_one_rank_finds_wrong_all_skip(ranks, alone, strategy):
    first, second = (found[f"{strategy} skip"] for found in ranks)
    assert first == second
    assert [row[:2] for row in first["trained"]] == [
        ("train", 1), ("train", 2), ("guard", 3), ("train", 4), ("guard", 5), ("train", 6),
    ]  # fmt: skip
    assert (first["trained"][2][2], first["trained"][4][3]) == (None, None)
    assert first["rows"] == alone["ddp skip"]["rows"] == [("skip", 3, 3, [16, 24]), ("skip", 5, 5, [32, 40])]
    assert first["end"][:2] == (6, 48)
    for row, reference in zip(first["trained"], alone["ddp skip"]["trained"], strict=True):
        assert row[2] == pytest.approx(reference[2], abs=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_one_rank_finds_wrong_takes_all_back(ranks, alone, strategy):
    first, second = (found[f"{strategy} rollback"] for found in ranks)
    assert first == second
    assert (
        first["rows"] == alone["ddp rollback"]["rows"] == [("rollback", 3, 3, [16, 24]), ("rollback", 4, 4, [32, 40])]
    )
    assert first["end"][:2] == (6, 64)
    for row, reference in zip(first["trained"], alone["ddp rollback"]["trained"], strict=True):
        assert row[2] == pytest.approx(reference[2], abs=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_shards_add_up_to_the_gradient_of_one_rank(ranks, alone, strategy):
    expected = alone["ddp gradients"]
    for found in ranks:
        got = found[f"{strategy} gradients"]
        assert list(got) == list(expected)
        for name, row in expected.items():
            for number in ("norm", "rms", "max", "zeros"):
                assert got[name][number] == pytest.approx(row[number], rel=1e-6), (name, number)
            moved = sum(abs(a - b) for a, b in zip(got[name]["decades"], row["decades"], strict=True))
            assert moved <= 2  # an entry at a bound may round to either side
            assert len(row["decades"]) == len(DECADES) + 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_share_the_weights_and_tell_what_one_rank_does(ranks, alone, strategy):
    """9 parameters are matrices: the last round has one for the first rank alone."""
    expected = alone["ddp weights"]["found"]
    assert len(expected) == 2 * 8 + 1
    for found in ranks:
        assert found[f"{strategy} weights"]["same"]
        assert list(found[f"{strategy} weights"]["found"].items()) == list(expected.items())


def test_bf16_keeps_the_stream_the_sums_and_the_state_in_fp32(ranks, alone):
    fp32 = {torch.float32}
    for told in (alone["ddp bf16"], *(found[f"{strategy} bf16"] for found in ranks for strategy in STRATEGIES)):
        assert told["streams"] == told["kept"] == fp32
    for found in ranks:
        assert found["fsdp bf16"]["sent"] == {
            ("all_gather_single", torch.bfloat16),  # blocks
            ("all_gather_single", torch.float32),  # embeddings, last norm and head
            ("reduce_scatter_single", torch.float32),
        }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bf16_on_two_ranks_is_near_bf16_on_one(ranks, alone, strategy):
    """Six steps: DDP was off by 6e-5 nats at most, FSDP, which rounds the gains of the blocks too, by 1.6e-4."""
    for found in ranks:
        assert found[f"{strategy} bf16"]["losses"] == pytest.approx(alone["ddp bf16"]["losses"], abs=1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_z_loss_is_the_mean_over_all_tokens(ranks, alone, strategy):
    for found in ranks:
        for name in (f"{strategy} z", f"{strategy} z accumulated"):
            for pair, reference in zip(found[name], alone["ddp z"], strict=True):
                assert pair == pytest.approx(reference, abs=1e-9)
