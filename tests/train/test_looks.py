"""What a step shows of itself: gradients by component, z-loss, updates that rounding undoes."""

import math

import numpy as np
import pytest
import torch
from tiny import config, quiet
from torch import nn

from seedbed.api import fit
from seedbed.config.optim import OptimConfig
from seedbed.facts.table import parameter_facts, part_of
from seedbed.measure.gradients import CHUNK, DECADES, tally, told
from seedbed.optim.groups import Optimizers, build_optimizers
from seedbed.parallel.world import World
from seedbed.train import loop
from seedbed.train.looks import gradient_components, lost_updates, rounded_sample
from seedbed.train.setup import resolve, start

ALONE = World(torch.device("cpu"))


def test_the_tally_of_known_entries():
    gradient = torch.tensor([0.0, -0.0, 1e-20, -3e-15, 2e-3, -5e-3, 0.5, 1.0, -40.0])
    sums, largest = tally(gradient)
    row = told(sums.tolist(), largest.item())
    assert row["zeros"] == pytest.approx(2 / 9)
    assert row["max"] == 40
    assert row["norm"] == pytest.approx(float(gradient.norm()))
    assert row["rms"] == pytest.approx(float(gradient.norm()) / 3)
    # below 1e-15; 1e-15 to 1e-14; ... 1e-3 to 1e-2; 0.1 to 1; 1 and above
    filled = {k: n for k, n in enumerate(row["decades"]) if n}
    assert filled == {0: 1, 1: 1, 1 + 12: 2, 1 + 14: 1, 1 + 15: 2}
    assert len(row["decades"]) == len(DECADES) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_tally_of_many_entries_is_that_of_numpy(dtype):
    generator = torch.Generator().manual_seed(0)
    gradient = (torch.randn(CHUNK + 77, generator=generator) * 1e-4).to(dtype)
    sums, largest = tally(gradient.view(1, -1))
    exact = gradient.double().abs().numpy()
    counts = np.histogram(exact, [1e-300, *(10.0**e for e in DECADES), math.inf])[0]
    assert (np.abs(np.array(sums[3:].tolist()) - counts) <= 2).all()  # bounds are fp32 numbers
    assert sums[0] == len(exact)
    assert sums[2].item() == pytest.approx((exact**2).sum(), rel=1e-12)
    assert largest.item() == pytest.approx(exact.max(), rel=1e-6)


def test_nothing_has_a_tally_too():
    sums, largest = tally(torch.zeros(0, 4))
    assert sums.sum() == largest == 0


@pytest.fixture
def job(tiny_store, tmp_path):
    more = ("train.gradients_every=2", "model.attention.qk_norm=head", "model.attention.gate=headwise")
    chosen, store = resolve(config(tiny_store, tmp_path / "r", *more))
    return start(chosen, tmp_path / "r", store)


def test_each_part_of_the_model_counts_once(job):
    batch = job.loader.next_batch()
    loop.backward(job, batch, 100)
    found = gradient_components(job.model, ALONE)
    total = sum(float(p.grad.double().square().sum()) for p in job.model.parameters())
    assert sum(row["norm"] ** 2 for row in found.values()) == pytest.approx(total, rel=1e-6)
    facts = {fact.name: fact for fact in parameter_facts(job.model)}
    qkv = facts["layers.1.attn.qkv.weight"]
    k = next(part for part in qkv.parts() if part.role == "attn.k")
    assert found["attn.k/1"]["norm"] == pytest.approx(
        float(part_of(job.model.layers[1].attn.qkv.weight.grad, k).norm())
    )
    assert {"embed", "head", "norm", "norm/0", "attn.gate/1", "mlp.down/0"} <= found.keys()
    assert list(found).index("attn.q/0") < list(found).index("attn.q/1") < list(found).index("mlp.up/0")
    assert sum(found["embed"]["decades"]) + found["embed"]["zeros"] * job.model.embed.weight.numel() == pytest.approx(
        job.model.embed.weight.numel()
    )
    assert found["embed"]["zeros"] > 0  # rows of tokens that the batch lacks


def test_rows_come_on_a_schedule_and_change_nothing(tiny_store, tmp_path):
    plain = fit(config(tiny_store, tmp_path / "a"), quiet)
    looked = fit(config(tiny_store, tmp_path / "b", "train.gradients_every=2", "train.log_every=4"), quiet)
    rows = [row for row in looked.metrics if row["kind"] == "gradients"]
    assert [row["step"] for row in rows] == [2, 4, 6]
    train = {row["step"]: row for row in plain.metrics if row["kind"] == "train"}
    for row in rows:  # before clipping, as the norm of the whole
        squares = sum(one["norm"] ** 2 for one in row["components"].values())
        assert math.sqrt(squares) == pytest.approx(train[row["step"]]["grad_norm"], rel=1e-5)
    assert all("gradients" not in row for row in looked.metrics)
    assert looked.summary.train_loss == train[6]["loss"]


def test_tensorboard_gets_the_components(tiny_store, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(config(tiny_store, tmp_path / "r", "train.gradients_every=3", "train.tensorboard=true"), quiet)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("gradients/components/attn.q/0/rms")] == [3, 6]


def test_z_loss_is_trained_on_and_reported_apart(tiny_store, tmp_path):
    rows = {}
    for z_loss, micro in ((0.0, 4), (0.1, 4), (0.1, 1)):
        told = [f"train.z_loss={z_loss}", f"train.micro_batch_size={micro}", "train.precision=fp64"]
        chosen, store = resolve(config(tiny_store, tmp_path / "r", *told))
        job = start(chosen, tmp_path / "r", store)
        rows[z_loss, micro] = [loop.train_step(job) for _ in range(4)]
    plain, whole, accumulated = rows.values()
    assert "z_loss" not in plain[0]
    assert whole[0]["loss"] == pytest.approx(plain[0]["loss"], abs=1e-12)
    assert whole[0]["z_loss"] == pytest.approx(0.1 * math.log(300) ** 2, rel=0.05)  # logits near 0 at first
    assert whole[3]["loss"] != pytest.approx(plain[3]["loss"], abs=1e-9)
    for a, b in zip(whole, accumulated, strict=True):
        assert (a["loss"], a["z_loss"]) == pytest.approx((b["loss"], b["z_loss"]), abs=1e-9)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)


def low_model(lr: float) -> tuple[Head, Optimizers]:
    torch.manual_seed(0)
    model = Head()
    optim = OptimConfig(name="adamw", lr=lr, weight_decay=0.0)
    with pytest.warns(UserWarning, match=r"torch.bfloat16: an update below 1/512 of its weight is LOST"):
        return model, build_optimizers(model, parameter_facts(model), optim)


@pytest.mark.parametrize(("lr", "least", "most"), [(1e-5, 0.75, 0.99), (1e-1, 0.0, 0.02)])
def test_updates_that_bf16_loses_are_counted(lr, least, most):
    """A first step of AdamW moves every entry by its rate: at 1e-5 entries above 0.005 stay as they are."""
    model, optimizers = low_model(lr)
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(64, 64, generator=generator).bfloat16()
    gradient[:8] = 0  # these have no update to lose
    model.head.weight.grad = gradient
    before = model.head.weight.detach().clone()
    sample = rounded_sample(model)
    optimizers.step()
    lost = lost_updates(sample, ALONE)
    assert least <= lost <= most
    assert lost == float((model.head.weight == before)[8:].double().mean())
    assert rounded_sample(nn.Linear(2, 2)) == []


def test_a_run_in_pure_bf16_warns_and_tells_its_losses(tiny_store, tmp_path):
    small = ["model.d_model=8", "model.attention.n_heads=1", "train.steps=2", "train.batch_size=1"]
    told = ["train.precision=pure_bf16", "optim.lr=1e-5", "optim.schedule.kind=constant", "optim.schedule.warmup=0"]
    with pytest.warns(UserWarning, match="LOST"):
        run = fit(config(tiny_store, tmp_path / "r", *told, *small), quiet)
    lost = [row["lost_updates"] for row in run.metrics if row["kind"] == "train"]
    assert all(0.5 < share <= 1 for share in lost)
