"""The measured balance: what is found is what a decoder drawn with it then has."""

import pytest
import torch

from seedbed.analysis.balance import _search, balance
from seedbed.config import Config, InitConfig, ModelConfig
from seedbed.data.split import Batch
from seedbed.errors import InputError
from seedbed.init import initialize_
from seedbed.measure.branches import branch_ratios
from seedbed.measure.residual import residual_report
from seedbed.model import Decoder

MODELS = {
    "swiglu": [],
    "swiglu, gated": ["model.attention.gate=elementwise"],
    "two-map": ["model.ffn.kind=gelu", "model.norm=layernorm", "model.position=learned", "model.bias=true"],
}


def model(*overrides: str) -> ModelConfig:
    shape = ["model.vocab_size=300", "model.d_model=64", "model.n_layers=2", "model.attention.n_heads=2"]
    return Config.load(None, [*shape, *overrides]).model


def batch() -> Batch:
    ids = torch.randint(300, (2, 32), generator=torch.Generator().manual_seed(0))
    doc_ids = torch.zeros_like(ids)
    doc_ids[:, 20:] = 1
    doc_ids[1, 25:] = -1
    return Batch(ids, ids, doc_ids, torch.arange(32).expand_as(ids))


def init(gamma: float = 1.0, by_role: dict[str, float] | None = None) -> InitConfig:
    return InitConfig.model_validate({"law": "gamma", "gamma": gamma, "by_role": by_role})


def drawn(config: ModelConfig, given: InitConfig, seed: int) -> Decoder:
    decoder = Decoder(config)
    initialize_(decoder, given.law, seed=seed, **given.options)
    return decoder


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("ratio", "gamma_e"), [(0.05, 1.0), (0.5, 0.75), (3.0, 1.0)])
def test_a_run_with_that_seed_has_the_ratio(name, ratio, gamma_e):
    config = model(*MODELS[name])
    found = balance(config, ratio, init(gamma_e), batch(), seed=3)
    assert found.tokens == 57
    decoder = drawn(config, found.init, seed=3)
    assert decoder.embed.weight.std().item() == pytest.approx(64**-gamma_e, rel=0.05)
    for branch in found.branches:
        measured = branch_ratios(decoder, branch.family, batch().ids, batch().doc_ids, batch().positions).mean()
        assert float(measured) == pytest.approx(ratio, rel=1.1e-3)
        assert branch.ratio == pytest.approx(float(measured), rel=1e-5)
        assert branch.measurements <= 9  # bisection would take 17
    assert [branch.family for branch in found.branches] == ["attn", "mlp"]
    k = 2 if name == "two-map" else 3
    assert [branch.analytic for branch in found.branches] == pytest.approx([0.5 + gamma_e / 2, 0.5 + gamma_e / k])


def test_the_first_attention_of_a_model_has_the_ratio_that_was_asked_for():
    config = model("model.n_layers=1")
    found = balance(config, 0.5, init(), batch(), seed=0)
    report = residual_report(drawn(config, found.init, 0), batch().ids, batch().doc_ids, batch().positions)
    assert report.layers[0].attn == pytest.approx(0.5, rel=1.1e-3)


def test_the_models_own_epsilon_counts():
    """At 1e-3 it masks 80 % of the embedding's 64^-2: the branches read less, and must be drawn larger."""
    plain, masked = (balance(model(f"model.norm_eps={eps}"), 0.5, init(), batch(), 0) for eps in ("1e-12", "1e-3"))
    for a, b in zip(plain.branches, masked.branches, strict=True):
        assert b.gamma < a.gamma - 0.05


def test_what_is_found_can_be_put_into_a_configuration():
    found = balance(model(), 0.5, init(), batch(), 0)
    attn, mlp = (branch.gamma for branch in found.branches)
    assert found.init.options == {"gamma": 1.0, "by_role": {"attn": attn, "mlp": mlp}}
    overrides = ["init.law=gamma", "init.gamma=1.0", f"init.by_role={{attn: {attn}, mlp: {mlp}}}"]
    assert Config.load(None, overrides).init == found.init


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 0.0}, "ratio above 0"),
        ({"ratio": float("nan")}, "ratio above 0"),
        ({"ratio": float("inf")}, "ratio above 0"),
        ({"init": InitConfig(law="gpt2")}, "init.law=gpt2 has no gamma of the embedding"),
        ({"init": InitConfig.model_validate({"law": "gamma", "gamma": 50.0})}, "which fp32 cannot draw"),
        ({"ratio": 1e9}, r"out of reach of attn: from gamma 0 to 2 its ratio goes from [\d.e+]+ to [\d.e-]+; ask"),
        ({"ratio": 1e-9}, "out of reach of attn"),
    ],
)
def test_wrong_input_is_told(arguments, message):
    with pytest.raises(InputError, match=message):
        balance(model(), **{"ratio": 0.5, "init": init(), **arguments}, batch=batch(), seed=0)


def test_what_the_configuration_says_of_other_roles_is_kept_and_of_the_branches_replaced():
    by_role = {"embed": 0.5, "head": 0.7, "pos": 1.5, "attn.q": 0.3, "mlp": 2.0}
    config = model("model.position=learned")
    found = balance(config, 0.5, init(1.0, by_role), batch(), seed=3)
    assert found.by_role == {"embed": 0.5, "head": 0.7, "pos": 1.5}
    assert found.replaced == {"attn.q": 0.3, "mlp": 2.0}
    assert found.init.options["by_role"] == found.by_role | {b.family: b.gamma for b in found.branches}
    decoder = drawn(config, found.init, seed=3)
    assert decoder.embed.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert decoder.head.weight.std().item() == pytest.approx(64**-0.7, rel=0.05)
    for branch in found.branches:
        assert float(
            branch_ratios(decoder, branch.family, batch().ids, batch().doc_ids, batch().positions).mean()
        ) == pytest.approx(0.5, rel=1.1e-3)
    assert [branch.analytic for branch in found.branches] == pytest.approx([0.75, 0.5 + 0.5 / 3])


def test_balanced_is_the_same_outside_the_branches():
    given = InitConfig.model_validate({"law": "balanced", "gamma": 0.8})
    assert balance(model(), 0.5, given, batch(), 0) == balance(model(), 0.5, init(0.8), batch(), 0)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("at", [0.0, 1.0, 2.0])
def test_a_ratio_that_is_no_number_stops_the_search(broken, at):
    """In the middle too, where nothing would ever be smaller than it."""
    with pytest.raises(InputError, match=rf"at gamma {at:g} attn is {broken:g} of its input"):
        _search(lambda gamma: broken if gamma == at else 10.0 ** (1 - gamma), "attn", 1.0)


def test_a_ratio_that_jumps_over_the_target_ends():
    asked = []

    def jump(gamma: float) -> float:
        asked.append(gamma)
        return 2.0 if gamma < 0.7 else 0.5

    with pytest.raises(InputError, match="after 50 measurements mlp is still not 1 of its input"):
        _search(jump, "mlp", 1.0)
    assert len(asked) == 50


def test_norms_behind_the_branches_are_refused():
    with pytest.raises(InputError, match=r"the norm behind a branch decides .* set model.norm_placement=pre"):
        balance(model("model.norm_placement=post"), 0.5, init(), batch(), seed=0)
