"""What a preflight says before training, against what then is."""

import itertools
import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from seedbed.analysis.preflight import drawn_std, first_step, measure_arm
from seedbed.analysis.resources import (
    FORWARD_FLOP,
    activation_bytes,
    measured_shape,
    measuring_bytes,
    memory_parts,
    parameter_counts,
    resources,
)
from seedbed.analysis.scaling import branch_scaling
from seedbed.analysis.verdicts import verdicts
from seedbed.config import Config, InitConfig
from seedbed.data.split import IGNORED, Batch
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_
from seedbed.measure.budget import predicted_budget
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers
from seedbed.report.preflight import tables

GATED = ["model.attention.gate=elementwise", "model.attention.n_kv_heads=2"]
GPT2 = ["model.ffn.kind=gelu", "model.norm=layernorm", "model.position=learned", "model.bias=true", "model.tied=true"]
OLMO2 = ["model.norm_placement=post", "model.attention.qk_norm=whole"]


def config(*overrides: str) -> Config:
    small = ["model.vocab_size=512", "model.d_model=64", "model.n_layers=3", "train.batch_size=4",
             "train.device=cpu"]  # fmt: skip
    return Config.load(None, [*small, *overrides])


def batch(length: int = 64) -> Batch:
    ids = torch.randint(512, (4, length + 1), generator=torch.Generator().manual_seed(0))
    return Batch(ids[:, :-1], ids[:, 1:], torch.zeros(4, length, dtype=torch.int64), torch.arange(length).expand(4, -1))


@pytest.mark.parametrize("shape", [GATED, GPT2])
def test_counts_by_role_are_exact(shape):
    c = config(*shape)
    assert sum(count.parameters for count in parameter_counts(c.model)) == sum(
        parameter.numel() for parameter in Decoder(c.model).parameters()
    )


def test_an_arm_is_the_run_that_would_start():
    c, fresh = config(*GATED, "run.seed=7"), Decoder(config(*GATED).model)
    arm = measure_arm(c, batch())
    initialize_(fresh, "gamma", seed=7)
    logits = fresh(batch().ids).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, batch().targets.flatten())
    loss.backward()
    assert arm.first.loss == pytest.approx(loss.item(), abs=1e-5)
    assert arm.first.logits.uniform_loss == pytest.approx(math.log(512))
    assert arm.first.logits.variance == pytest.approx(logits.var(-1, correction=0).mean().item(), rel=1e-3)
    assert arm.first.loss == pytest.approx(math.log(512), abs=0.02)  # gamma = 1: logits hardly differ from 0
    gradients = {row.role: row.norm for row in arm.first.gradients}
    grad = fresh.head_weight.grad
    assert grad is not None
    assert gradients["head"] == pytest.approx(grad.norm().item(), rel=1e-3)
    assert arm.residual.tokens == arm.first.tokens == 256
    assert [row.quantity for row in arm.budget if row.measured is None] == []
    assert len(arm.precision) == 4
    assert len(arm.sink.scores) == 3


def test_what_predicts_nothing_does_not_dilute_the_loss():
    c, whole = config(), batch()
    targets = whole.targets.clone()
    targets[:, 32:] = IGNORED
    masked = measure_arm(c, whole._replace(targets=targets)).first
    assert masked.loss == pytest.approx(math.log(512), rel=0.01)
    assert masked.tokens == 256


def test_norms_of_queries_and_keys_and_learned_positions_are_measured_too():
    arm = measure_arm(config(*GPT2, "model.attention.qk_norm=head"), batch())
    assert len(arm.residual.qk_norms) == 6
    assert {row.role for row in arm.first.gradients} > {"pos", "bias", "norm.bias"}


def test_norms_behind_the_branches_have_no_budget_and_say_so():
    c = config(*OLMO2)
    arm = measure_arm(c, batch())
    assert (arm.budget, arm.scaling) == ([], {})
    assert {row.name for row in arm.residual.norms} > {"layers.0.attn_norm", "layers.2.mlp_norm", "norm"}
    (found,) = [verdict for verdict in verdicts(arm, c) if "budget" in verdict.text]
    assert found.level == "note"
    assert "norms stand behind the branches" in found.text
    texts = " ".join(verdict.text for verdict in verdicts(arm, c))
    assert "raise the std of the embedding" in texts  # of std 1/64: what is added has the size of the norms' gain, 1
    assert "its maps" not in texts and "attn.o" not in texts
    assert "budget" not in tables([arm])
    with pytest.raises(InputError, match="variance budget: model.norm_placement=post"):
        predicted_budget(c.model, {})


def test_masking_is_s0s_at_its_width():
    """d = 2048, embeddings N(0, d^-2): 98 % at the usual epsilon, under 1e-5 at 1e-12."""
    shape = [
        "model.d_model=2048",
        "model.n_layers=1",
        "model.attention.n_heads=16",
        "model.ffn.d_ff=64",
        "optim.name=adamw",
    ]
    norm = measure_arm(config(*shape), batch(8)).residual.norms[0]
    assert norm.name == "layers.0.attn_norm"
    assert round(100 * norm.masking_usual) == 98
    assert norm.masking < 1e-5


def test_a_scale_that_overflows_is_refused():
    with pytest.raises(InputError, match="gamma gamma=-7.0: the first forward pass overflows"):
        measure_arm(config("init.gamma=-7.0"), batch())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_first_step_is_made_at_the_peak_rate(optimizer):
    """Every entry by its rate with AdamW, by a fifth of that in the root mean square with Muon."""
    c = config(f"optim.name={optimizer}", "optim.lr=1e-3", "optim.weight_decay=0", "optim.schedule.warmup=100")
    model = Decoder(c.model)
    initialize_(model, "normal", std=1.0)
    before = model.layers[0].mlp.down.weight.detach().clone()
    step = first_step(model, parameter_facts(model), c, batch())
    moved = (model.layers[0].mlp.down.weight.detach() - before).square().mean().sqrt().item()
    assert moved == pytest.approx(1e-3 if optimizer == "adamw" else 0.2e-3, rel=0.1)
    lost = {row.role: row.share for row in step.lost}
    # of N(0, 1), 62 % are above 0.5, where neighbours are 2^-8 or more apart: 1e-3 does not reach halfway
    assert lost["mlp.down"] == pytest.approx(0.62 if optimizer == "adamw" else 0.9, abs=0.1)
    assert "norm" not in lost


def test_arms_without_a_trace_of_the_one_before():
    one, two = (measure_arm(config(*GATED), batch()) for _ in range(2))
    assert one.first.gradients == two.first.gradients
    assert one.residual == two.residual


def test_the_budget_predicts_from_what_is_drawn():
    c = config(*GATED)
    model = Decoder(c.model)
    report = initialize_(model, "gpt2")
    std = drawn_std(parameter_facts(model), report)
    assert std[0, "attn.q"] == 0.02
    assert std[2, "mlp.down"] == pytest.approx(0.02 / 6**0.5)
    assert initialize_(model, "mup").plan.rows[2].name == "layers.0.attn.q.weight"
    assert drawn_std(parameter_facts(model), initialize_(model, "mup"))[0, "attn.q"] == 0


@pytest.mark.parametrize(
    ("law", "shape", "attention", "mlp"),
    [
        ({"law": "gamma", "gamma": 1.0}, [], (2, 0.0, 1.0), (3, -0.5, 5 / 6)),
        ({"law": "gamma", "gamma": 1.0}, GPT2, (2, 0.0, 1.0), (2, 0.0, 1.0)),
        ({"law": "gamma", "gamma": 0.5}, [], (2, 0.5, 0.75), (3, 0.5, 2 / 3)),
        ({"law": "balanced", "gamma": 1.0}, GATED, (2, 0.0, 1.0), (3, 0.0, 5 / 6)),
        ({"law": "gpt2"}, [], (2, 1.0, 0.5), (3, 1.5, 0.5)),
        ({"law": "kaiming"}, [], (2, 0.5, 0.75), (3, 0.5, 2 / 3)),
        ({"law": "mup"}, [], (2, 0.0, 0.5), (3, 0.0, 0.5)),
    ],
)
def test_exponents_of_the_width_follow_from_the_law(law, shape, attention, mlp):
    """Science section 2: k(1/2 - gamma_b) + gamma_e, and 1/2 + gamma_e/k to balance it."""
    scaling = branch_scaling(config(*shape).model, InitConfig.model_validate(law))
    for branch, (maps, exponent, balancing) in (("attention", attention), ("mlp", mlp)):
        assert scaling[branch].maps == maps
        assert scaling[branch].exponent == pytest.approx(exponent, abs=1e-9)
        assert scaling[branch].balancing == pytest.approx(balancing)


@pytest.mark.parametrize(
    ("sequences", "length", "shape"), [(8, 256, (8, 256)), (8, 4096, (8, 4096)), (10**6, 2048, (0, 2048))]
)
def test_a_small_model_is_measured_on_whole_sequences(sequences, length, shape):
    rows, tokens = measured_shape(config(), sequences, length)
    assert tokens == shape[1]
    per_token = 2 * (sum(p.numel() for p in Decoder(config().model).parameters()) - 512 * 64)  # but the embedding
    assert rows == (shape[0] or int(FORWARD_FLOP["cpu"] / per_token) // length)


def test_a_large_model_is_measured_on_a_part_of_one():
    large = Config.load("recipes/dense-12x768.yaml", ["train.device=cpu"])
    rows, tokens = measured_shape(large, 8, 2048)
    assert rows == 1
    assert 500 < tokens < 700


@pytest.mark.parametrize("shape", [GATED, GPT2, OLMO2])
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


@pytest.mark.parametrize(
    "optimizer", [["optim.name=muon"], ["optim.name=muon", "optim.muon.embeddings=muon"], ["optim.name=adamw"]]
)
def test_optimizer_memory_is_what_the_optimizer_holds(optimizer):
    c = config(*GATED, *optimizer)
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


def test_measuring_a_quarter_of_a_micro_batch_takes_a_quarter_of_its_activations():
    parts = {"weights": 100, "activations": 400}
    assert measuring_bytes(config(), parts, 64, 64) == 200


def test_time_counts_every_pass_of_a_step(monkeypatch):
    """With a clock that ticks once a reading, a pass over 256 tokens takes one tick, and so does the update."""
    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    c = config("train.steps=10", "train.batch_size=400", "train.micro_batch_size=4", "train.precision=bf16")
    model = Decoder(c.model)
    initialize_(model)
    told = resources(c, 64, first_step(model, parameter_facts(model), c, batch()))
    assert told.step_seconds == 100 * 1 + 1
    assert (told.seconds, told.tokens) == (10 * 101, 10 * 400 * 64)
    assert (told.timed_tokens, told.timed_in) == (256, "fp32 on cpu")
