"""Every law against the number that science.md section 1 gives for it."""

import math

import pytest

from seedbed.config.options import law_options
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.laws import LAWS, TELLS_ALL, Distribution, distribution


def fact(role="attn.q", d_in=2048, d_out=2048, n_layers=24, writes_residual=False, **more) -> ParameterFact:
    return ParameterFact("x", role, (d_out, d_in), d_in, d_out, 0, n_layers, writes_residual, **more)


def std(role: str, law: str, options: dict | None = None, **facts) -> float:
    return distribution(fact(role, **facts), law, options or {}).std


@pytest.mark.parametrize(("gamma", "variance"), [(0.5, 4.88e-4), (1.0, 2.38e-7)])
def test_gamma_at_the_width_of_s0(gamma, variance):
    law = distribution(fact(), "gamma", {"gamma": gamma})
    assert law.kind == "normal"
    assert law.std**2 == pytest.approx(variance, rel=2e-3)
    assert law.std == 2048**-gamma


def test_gpt2_scales_what_writes_to_the_stream():
    plain = distribution(fact(), "gpt2", {"std": 0.02})
    scaled = distribution(fact("attn.o", writes_residual=True), "gpt2", {"std": 0.02})
    assert plain.std == 0.02
    assert scaled.std == pytest.approx(0.02 / math.sqrt(48))
    assert (plain.std / scaled.std) ** 2 == pytest.approx(48)  # S1's factor a block
    high = distribution(fact("mlp.down", n_layers=2, writes_residual=True), "gpt2", {"std": 0.08})
    assert high.std == pytest.approx(0.04)  # S2's high std


def test_normal_scales_nothing():
    assert distribution(fact("attn.o", writes_residual=True), "normal", {"std": 0.02}).std == 0.02


def test_both_kaimings_of_s1():
    torch_default = distribution(fact(d_in=1536), "kaiming", {"variant": "torch"})
    he = distribution(fact(d_in=1536), "kaiming", {"variant": "he"})
    assert (torch_default.kind, round(torch_default.std, 4)) == ("uniform", 0.0147)
    assert (he.kind, round(he.std, 3)) == ("normal", 0.036)


def test_xavier_uses_both_sides():
    law = distribution(fact(d_in=100, d_out=300), "xavier", {"gain": 2.0, "shape": "normal"})
    assert law.std == pytest.approx(2 * math.sqrt(2 / 400))
    assert law.kind == "normal"


def test_gamma_of_a_role_of_its_family_and_of_all_others():
    options = {"gamma": 1.0, "by_role": {"mlp": 0.75, "mlp.down": 0.5}}
    found = {role: std(role, "gamma", options, d_in=256) for role in ("mlp.down", "mlp.up", "attn.q", "embed")}
    assert found == {"mlp.down": 256**-0.5, "mlp.up": 256**-0.75, "attn.q": 1 / 256, "embed": 1 / 256}


def test_a_role_that_does_not_exist_is_refused_with_the_known_ones():
    with pytest.raises(Exception, match=r"unknown role 'mlp\.dwon'.*mlp\.down"):
        law_options("gamma", {"by_role": {"mlp.dwon": 1.0}})


@pytest.mark.parametrize(("maps", "exponent"), [(2, 1.0), (3, 5 / 6), (0, 1.0)])
def test_balanced_gives_each_branch_its_gamma(maps, exponent):
    """gamma_b = 1/2 + gamma_e/k: at gamma_e = 1 that is 1 for attention and two maps, 5/6 for SwiGLU."""
    assert std("mlp.up", "balanced", maps=maps) == pytest.approx(2048**-exponent, rel=1e-12)
    assert std("mlp.up", "balanced", {"gamma": 0.5}, maps=2) == pytest.approx(2048**-0.75, rel=1e-12)


def test_lecun_is_fan_in_with_gain_one():
    assert distribution(fact(d_in=100), "lecun", {}) == LAWS["lecun"](fact(d_in=100), gain=1.0, shape="normal")
    assert std("attn.q", "lecun", {"gain": 3.0}, d_in=100) == pytest.approx(0.3)
    assert distribution(fact(d_in=100), "lecun", {"shape": "uniform"}).kind == "uniform"


def test_orthogonal_states_the_rms_of_its_entries():
    """An orthonormal m x n matrix has Frobenius norm sqrt(min(m, n))."""
    for d_in, d_out in ((64, 256), (256, 64), (64, 64)):
        law = distribution(fact(d_in=d_in, d_out=d_out), "orthogonal", {"gain": 2.0})
        assert law.kind == "orthogonal"
        assert law.std * math.sqrt(d_in * d_out) == pytest.approx(2 * math.sqrt(min(d_in, d_out)))
    assert distribution(fact("embed", d_in=64, d_out=1000), "orthogonal", {}).std == 1 / 8


def test_small_init_depends_on_the_model_width_alone():
    """sqrt(2/(5d)) on both maps of a network from d to 4d and back: Xavier's scale between the two."""
    up = std("mlp.up", "small_init", d_in=512, d_out=2048)
    down = std("mlp.down", "small_init", d_in=2048, d_out=512, writes_residual=True)
    assert up == down == math.sqrt(2 / (5 * 512)) == pytest.approx(std("mlp.up", "xavier", d_in=512, d_out=2048))
    assert std("patch", "small_init", d_in=768, d_out=512) == up


def test_deepnorm_scales_values_outputs_and_feed_forward():
    """beta = (8L)^(-1/4), Xavier otherwise: at L = 18 beta is 0.289 (DeepNet, decoder-only)."""
    beta = (8 * 18) ** -0.25
    assert beta == pytest.approx(0.2887, abs=1e-4)
    for role, gain in (("attn.q", 1), ("attn.k", 1), ("attn.v", beta), ("attn.o", beta), ("mlp.up", beta)):
        found = std(role, "deepnorm", {"post_norm": True}, n_layers=18)
        assert found == pytest.approx(gain * math.sqrt(2 / 4096)), role


def test_deepnorm_is_refused_unless_the_model_is_post_norm():
    with pytest.raises(InputError, match="this one is pre-norm"):
        std("attn.q", "deepnorm", {"post_norm": True}, placement="pre")
    with pytest.raises(InputError, match="this one is not, it norms what its branches add; use gpt2"):
        std("attn.q", "deepnorm", {"post_norm": True}, placement="branch")
    for placement in (None, "post"):  # a post-norm block need not multiply its stream
        with pytest.raises(InputError, match="post_norm=true"):
            std("attn.q", "deepnorm", placement=placement)


def test_balanced_is_refused_where_a_norm_decides_how_large_a_branch_is():
    assert std("attn.o", "balanced", placement="pre", maps=2) == std("attn.o", "balanced", maps=2)
    with pytest.raises(InputError, match="a norm stands behind each branch; use gamma, or model.norm_placement=pre"):
        std("attn.o", "balanced", placement="branch", maps=2)


def test_reuse_copies_all_but_the_token_embeddings():
    told = {"checkpoint": "runs/a"}
    for role in ("norm", "norm.bias", "bias", "kept", "pos", "attn.q", "head"):
        assert distribution(fact(role), "reuse", told).kind == "copied", role
    assert distribution(fact("embed"), "reuse", {**told, "std": 0.1}) == Distribution("normal", 0.1)
    assert distribution(fact("head", tied=("embed.weight",)), "reuse", told) == Distribution("normal", 0.02)


@pytest.mark.parametrize("law", sorted(set(LAWS) - TELLS_ALL))
def test_norms_and_biases_are_the_same_under_every_other_law(law):
    fixed = {"norm": 1.0, "norm.offset": 0.0, "norm.bias": 0.0, "bias": 0.0, "pos.bias": 0.0}
    for role, value in fixed.items():
        given = distribution(fact(role), law, {})
        assert (given.kind, given.value) == ("constant", value), role
    assert distribution(fact("kept"), law, {}).kind == "kept"


def test_a_kind_of_distribution_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'gaussian' is no kind of distribution; known: normal, uniform"):
        Distribution("gaussian", 0.1)  # pyright: ignore[reportArgumentType]


def test_queries_that_are_made_by_two_matrices_start_at_zero_under_mup():
    assert distribution(fact("attn.q_up"), "mup", {}).kind == "constant"
    assert std("attn.q_down", "mup", d_in=64) == std("attn.qkv", "mup", d_in=64) == 0.02 * 2


def test_deepnorm_refuses_values_that_are_interleaved_with_queries():
    with pytest.raises(InputError, match="interleaved"):
        std("attn.qkv", "deepnorm", {"post_norm": True})


def test_a_pre_norm_decoder_is_told_the_reason_and_not_another():
    """The embedding, which comes first, stands in no block and knows of no placement."""
    outside = ParameterFact("embed", "embed", (64, 32), 32, 64, n_layers=2)
    assert distribution(outside, "deepnorm", {}).kind == "normal"
