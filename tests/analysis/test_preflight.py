"""What a preflight says before training, against what then is."""

import itertools
import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from seedbed.analysis.preflight import (
    activation_bytes,
    estimate_resources,
    measure_arm,
    memory_parts,
    norm_table,
    parameter_counts,
    plan_table,
)
from seedbed.config import Config, InitConfig
from seedbed.data.split import Batch
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_, make_plan
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers

GATED = ["model.attention.gate=elementwise", "model.attention.n_kv_heads=2"]
GPT2 = ["model.ffn.kind=gelu", "model.norm=layernorm", "model.position=learned", "model.bias=true", "model.tied=true"]


def config(*overrides: str) -> Config:
    small = ["model.vocab_size=512", "model.d_model=64", "model.n_layers=3", "train.batch_size=4"]
    return Config.load(None, [*small, *overrides])


def batch(length: int = 64) -> Batch:
    ids = torch.randint(512, (4, length + 1), generator=torch.Generator().manual_seed(0))
    return Batch(ids[:, :-1], ids[:, 1:], torch.zeros(4, length, dtype=torch.int64))


@pytest.mark.parametrize("shape", [GATED, GPT2])
def test_counts_by_role_are_exact(shape):
    c = config(*shape)
    assert sum(count.parameters for count in parameter_counts(c.model)) == sum(
        parameter.numel() for parameter in Decoder(c.model).parameters()
    )


def test_an_arm_is_the_run_that_would_start(tmp_path):
    c = config(*GATED)
    model, fresh = Decoder(c.model), Decoder(c.model)
    measure_arm(model, InitConfig(law="gpt2"), 7, batch())  # what was drawn before leaves no trace
    arm = measure_arm(model, c.init, 7, batch())
    initialize_(fresh, "gamma", seed=7)
    with torch.no_grad():
        logits = fresh(batch().ids).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, batch().targets.flatten())
    assert arm.loss == pytest.approx(loss.item(), abs=1e-5)
    assert arm.logits.uniform_loss == pytest.approx(math.log(512))
    assert arm.loss == pytest.approx(math.log(512), abs=0.02)  # gamma = 1: logits hardly differ from 0


def test_masking_is_s0s_at_its_width():
    """d = 2048, embeddings N(0, d^-2): 98 % at the usual epsilon, under 1e-5 at 1e-12."""
    shape = ["model.d_model=2048", "model.n_layers=1", "model.attention.n_heads=16", "model.ffn.d_ff=64"]
    arm = measure_arm(Decoder(config(*shape).model), InitConfig(law="gamma", gamma=1.0), 0, batch(8))
    name, own, usual = norm_table([arm])[0]
    assert name == "layers.0.attn_norm"
    assert round(100 * usual[0]) == 98
    assert own[0] < 1e-5


def test_the_plan_joins_equal_layers():
    facts = parameter_facts(Decoder(config().model))
    plans = [make_plan(facts, InitConfig(law=law)) for law in ("gamma", "gpt2")]
    rows = {row[0]: row[1:] for row in plan_table(plans)}
    role, tensors, shape, laws = rows["layers.*.attn.o.weight"]
    assert (role, tensors, shape) == ("attn.o", 3, "64×64")
    assert laws == ["N(0, 0.01562²)", "N(0, 0.008165²)"]
    assert sum(row[1] for row in rows.values()) == len(plans[0].rows)


@pytest.mark.parametrize("shape", [GATED, GPT2])
def test_activation_memory_is_near_what_autograd_keeps(shape):
    c = config(*shape, "model.d_model=128")
    model = Decoder(c.model)
    initialize_(model)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        model(batch(128).ids, hidden=True)
    real = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert activation_bytes(c, 128) == pytest.approx(real, rel=0.2)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_optimizer_memory_is_what_the_optimizer_holds(optimizer):
    c = config(*GATED, f"optim.name={optimizer}")
    model = Decoder(c.model)
    initialize_(model)
    optimizers = build_optimizers(model, parameter_facts(model), c.optim)
    held = sum(tensor.nbytes for tensor in optimizers.state_dict().values())
    parts = memory_parts(c, 64)
    assert parts["optimizer state"] == pytest.approx(held, rel=1e-3)  # but for AdamW's step counts
    assert parts["weights"] == sum(p.nbytes for p in model.parameters())


def test_the_chunk_of_logits_is_that_of_the_loss():
    """At V = 100,000 a chunk has 128 tokens, not the 41 that its usual size would give."""
    assert memory_parts(config("model.vocab_size=100000"), 64)["logits of a chunk"] == 2 * 4 * 128 * 100_000


def test_time_counts_every_pass_of_a_step(monkeypatch):
    """With a clock that ticks once a reading, forward and backward take one tick, and so does the update."""
    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    model = Decoder(config().model)
    initialize_(model)
    c = config("train.steps=10", "train.batch_size=400", "train.micro_batch_size=4")
    resources = estimate_resources(model, c, batch(), {})
    assert resources.step_seconds == 100 * 1 + 1
    assert (resources.seconds, resources.tokens) == (10 * 101, 10 * 400 * 64)
