"""Plan, apply, receipt: exact scales, own generators, nothing left undrawn."""

import json
import math

import pytest
import torch
from torch import nn

from seedbed.config import Config, InitConfig
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import InitReport, apply_plan, initialize_, make_plan
from seedbed.init.apply import draw, tensor_seed
from seedbed.laws import LAWS, Distribution
from seedbed.model import Decoder


def decoder(*overrides: str) -> Decoder:
    return Decoder(
        Config.load(None, ["model.vocab_size=128", "model.d_model=64", "model.n_layers=2", *overrides]).model
    )


def standard_errors(row) -> float:
    """Distance of measured and target std in standard errors: sigma/sqrt(2n); of a uniform 0.447 of sigma/sqrt(n)."""
    one = (1 / math.sqrt(2) if row.distribution.startswith("N") else 0.447) * row.target_std
    return abs(row.std - row.target_std) / (one / math.sqrt(math.prod(row.shape)))


@pytest.mark.parametrize("law", sorted(set(LAWS) - {"deepnorm", "reuse"}))
def test_every_drawn_tensor_has_its_target_std(law):
    receipt = initialize_(decoder("model.attention.gate=elementwise"), law, seed=3)
    drawn = [row for row in receipt.rows if row.target_std]
    zero = {"mup": 1 + 2}.get(law, 0)  # head and queries
    assert len(drawn) == 2 + 2 * 8 - zero
    for row in drawn:
        assert standard_errors(row) < 4, row
        assert abs(row.mean) < 4.5 * row.target_std / math.sqrt(math.prod(row.shape)), row


def test_the_tolerance_would_see_gamma_off_by_a_hundredth():
    law = Distribution("normal", 256**-0.51)
    values = draw((256, 256), law, 0, "w")
    wrong = abs(values.std().item() - 256**-0.50) / (256**-0.50 / math.sqrt(2 * 256**2))
    assert wrong > 4


@pytest.mark.parametrize("n_layers", [2, 8])
def test_residual_scaling_is_applied(n_layers):  # case 28
    receipt = initialize_(decoder(f"model.n_layers={n_layers}"), "gpt2", std=0.02)
    rows = {row.name: row for row in receipt.rows}
    for name in ("attn.o", "mlp.down"):
        row = rows[f"layers.1.{name}.weight"]
        assert row.std == pytest.approx(0.02 / math.sqrt(2 * n_layers), rel=0.05)
    assert rows["layers.1.attn.q.weight"].std == pytest.approx(0.02, rel=0.05)


def test_nothing_is_left_undrawn_after_meta_construction():  # case 29
    config = Config.load(None, ["model.vocab_size=128", "model.tied=true", "model.attention.qk_norm=head"]).model
    with torch.device("meta"):
        model = Decoder(config)
    with pytest.raises(InputError, match="materialize_"):
        initialize_(model)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.constant_(parameter, torch.nan)
    initialize_(model, seed=5)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert not list(model.buffers())  # rotation tables are made from positions, nothing to recompute
    assert model.head_weight is model.embed.weight
    eager = Decoder(config)
    initialize_(eager, seed=5)
    for (name, a), b in zip(model.named_parameters(), eager.parameters(), strict=True):
        assert torch.equal(a, b), name
    ids = torch.arange(10)[None]
    assert torch.equal(model(ids), eager(ids))


def test_a_model_is_born_undrawn():
    assert all(torch.isnan(p).all() for p in decoder().parameters())


def test_fused_equals_separate():
    model = decoder("model.attention.n_kv_heads=2")
    initialize_(model, "kaiming", seed=7)
    qkv = model.layers[1].attn.qkv.weight
    law = LAWS["kaiming"]
    facts = {p.name: p for f in parameter_facts(model) for p in f.parts()}
    for block in ("q", "k", "v"):
        fact = facts[f"layers.1.attn.{block}.weight"]
        alone = draw(fact.shape, law(fact), 7, fact.name)
        assert torch.equal(qkv[slice(*fact.rows)], alone), block


def test_a_tensor_does_not_depend_on_the_others():
    deep, shallow = decoder("model.n_layers=3"), decoder("model.n_layers=1", "model.attention.gate=headwise")
    initialize_(deep, seed=1)
    initialize_(shallow, seed=1)
    assert torch.equal(deep.embed.weight, shallow.embed.weight)
    assert torch.equal(deep.layers[0].attn.qkv.weight, shallow.layers[0].attn.qkv.weight[:192])


def test_names_and_seeds_make_different_draws():
    model = decoder()
    initialize_(model, seed=1)
    assert not torch.equal(model.layers[0].attn.o.weight, model.layers[1].attn.o.weight)
    assert tensor_seed(1, "w") != tensor_seed(2, "w") != tensor_seed(2, "v")


def test_a_seed_keeps_its_weights_from_release_to_release():
    assert tensor_seed(1, "w") == 5447457767089122420  # SHA-256 of "1:w"
    expected = {"normal": [0.0172616858, -0.4603385926, 0.0695115328], "uniform": [-0.1056703553, 1.6799447536]}
    for kind, values in expected.items():
        drawn = draw((4,), Distribution(kind, 1.0), 1, "w")  # pyright: ignore[reportArgumentType]
        torch.testing.assert_close(drawn[: len(values)], torch.tensor(values))


@pytest.mark.parametrize("law", ["gamma", "kaiming", "orthogonal", "realistic"])
def test_models_of_any_precision_hold_the_fp32_draw(law):
    model, half, double = decoder(), decoder().bfloat16(), decoder().double()
    report = initialize_(model, law, seed=2)
    assert initialize_(half, law, seed=2) == initialize_(double, law, seed=2) == report
    for name, tensor in model.named_parameters():
        assert torch.equal(half.get_parameter(name), tensor.bfloat16()), name
        assert torch.equal(double.get_parameter(name), tensor.double()), name


def test_a_plan_is_known_before_any_number_and_is_plain_data():
    with torch.device("meta"):
        facts = parameter_facts(decoder("model.d_model=256"))
    plan = make_plan(facts, InitConfig(law="gamma", gamma=1.0))
    assert {row.distribution.std for row in plan.rows if row.d_in == 256} == {1 / 256}
    assert json.loads(json.dumps(plan.dump()))["options"] == {"gamma": 1.0, "by_role": None}
    assert plan.n_parameters == sum(math.prod(fact.shape) for fact in facts)


def test_a_saved_receipt_replays_to_the_same_weights(tmp_path):
    first, second = decoder(), decoder()
    receipt = initialize_(first, "xavier", seed=11, gain=0.5)
    (tmp_path / "receipt.json").write_text(json.dumps(receipt.dump()))
    saved = InitReport.load(tmp_path / "receipt.json")
    assert saved == receipt
    apply_plan(second, saved.plan, saved.seed)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert "xavier gain=0.5" in str(receipt)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version": 3}', '{"format_version": 1, "init_from": "x"}'])
def test_what_is_no_receipt_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="receipt"):
        InitReport.load(tmp_path / "none.json")
    (tmp_path / "receipt.json").write_text(text)
    with pytest.raises(InputError, match="receipt"):
        InitReport.load(tmp_path / "receipt.json")


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 4)
        self.bare = nn.Parameter(torch.zeros(4, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"law": "gama"}, "did you mean 'gamma'"),
        ({"law": "gamma", "gama": 1.0}, "did you mean 'gamma'"),
        ({"law": "gamma", "gamma": math.inf}, "finite"),
        ({"law": "gamma", "gamma": 50.0}, "which fp32 cannot draw"),
        ({"law": "normal", "std": -1.0}, "gives std -1"),
        ({"law": "gamma", "gamma": -400.0}, "which fp32 cannot draw"),
        ({"law": "gamma", "gamma": -1e30}, "has no scale for"),
        ({"law": "gamma"}, "bare"),
    ],
)
def test_wrong_input_leaves_the_module_untouched(arguments, message):
    model = Half()
    before = {name: p.clone() for name, p in model.named_parameters()}
    if message != "bare":
        arguments = {**arguments, "roles": {"bare": "linear"}}
    with pytest.raises(InputError, match=message):
        initialize_(model, **arguments)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_depth_scaling_without_a_stack_is_refused():
    block = decoder().layers[0]
    with pytest.raises(InputError, match=r"init: attn\.o\.weight: the law scales with depth"):
        initialize_(block, "gpt2")
    assert all(torch.isnan(p).all() for p in block.parameters())


def test_a_plan_that_does_not_fit_is_refused_before_drawing():
    model, other = decoder(), decoder("model.n_layers=1")
    plan = make_plan(parameter_facts(other), InitConfig(law="gamma"))
    with pytest.raises(InputError, match="does not cover layers.1"):
        apply_plan(model, plan, 0)
    assert all(torch.isnan(p).all() for p in model.parameters())
    plan = make_plan(parameter_facts(model), InitConfig(law="gamma"))
    with pytest.raises(InputError, match="does not have layers.1"):
        apply_plan(other, plan, 0)


def test_normal_draws_are_not_truncated():
    """A cut at two or three standard deviations would shrink the std by 12 % or 1.3 %."""
    for cut, shrinks in ((2, 0.12), (3, 0.013)):
        density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
        assert 1 - math.sqrt(1 - 2 * cut * density / math.erf(cut / math.sqrt(2))) == pytest.approx(shrinks, abs=5e-4)
    values = draw((1000, 1000), Distribution("normal", 1.0), 0, "w")
    beyond = [int((values.abs() > cut).sum()) for cut in (2, 3, 4)]
    assert beyond == pytest.approx([45_500, 2_700, 63], rel=0.4)
