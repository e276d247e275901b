"""The laws of S2 against their formulas, on a cohort made by hand."""

import pytest
from cohorts import write

from seedbed.config import InitConfig
from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact
from seedbed.laws import distribution

RMS = {"attn.qkv": (0.04, 0.02, 0.01), "mlp.down": (0.01, 0.02, 0.08)}
SPECTRAL = ("magnitude", "magnitude+spectrum", "realistic")
MEAN = {"attn.qkv": 0.01875, "mlp.down": 0.25 * 0.015 + 0.75 * 0.05}


def fact(role: str, layer: int | None = 0, n_layers: int = 5) -> ParameterFact:
    return ParameterFact("x", role, (16, 8), 8, 16, layer, n_layers)


@pytest.fixture
def cohort(tmp_path) -> str:
    return write(tmp_path / "cohort.json", RMS)


@pytest.mark.parametrize(("layer", "z", "rms"), [(0, 0.0, 0.04), (1, 0.25, 0.02), (2, 0.5, 0.05 / 3), (4, 1.0, 0.01)])
def test_each_law_at_each_depth(cohort, layer, z, rms):
    given = {law: distribution(fact("attn.qkv", layer), law, {"cohort": cohort, "std": 0.03}) for law in SPECTRAL}
    scale = 0.03 * rms / MEAN["attn.qkv"]
    assert (given["magnitude"].kind, given["magnitude"].std) == ("normal", pytest.approx(scale))
    shaped = given["magnitude+spectrum"]
    assert (shaped.kind, shaped.std, shaped.decay) == ("spectrum", pytest.approx(scale), pytest.approx(5 * (1 - z)))
    real = given["realistic"]
    assert (real.kind, real.std, real.decay) == ("spectrum", pytest.approx(rms), pytest.approx(5 * (1 - z)))


def test_writing_matrices_follow_a_curve_of_their_own(cohort):
    stds = [distribution(fact("mlp.down", layer), "magnitude", {"cohort": cohort}).std for layer in range(5)]
    assert stds == sorted(stds)
    assert stds[4] == pytest.approx(0.02 * 0.08 / MEAN["mlp.down"])


def test_strength_and_direction(cohort):
    for law in SPECTRAL[1:]:
        decays = [
            distribution(fact("attn.k", layer), law, {"cohort": cohort, "strength": 3.0, "direction": "late"}).decay
            for layer in (0, 1, 4)
        ]
        assert decays == pytest.approx([0.0, 0.75, 3.0])


@pytest.mark.parametrize("law", SPECTRAL)
@pytest.mark.parametrize("role", ["embed", "pos", "token", "patch", "head", "moe.router", "conv", "linear"])
def test_what_is_on_no_branch_keeps_one_scale(cohort, law, role):
    given = distribution(fact(role, None), law, {"cohort": cohort, "std": 0.03})
    assert (given.kind, given.std) == ("normal", 0.03)


@pytest.mark.parametrize("law", SPECTRAL)
@pytest.mark.parametrize("role", ["mlp.gate", "attn.o", "attn.gate", "attn.kv_up"])
def test_a_cohort_of_another_component_set_is_refused(cohort, law, role):
    with pytest.raises(InputError, match=f"another component set: it has attn.qkv, mlp.down, and no {role}"):
        distribution(fact(role), law, {"cohort": cohort})


@pytest.mark.parametrize("law", SPECTRAL)
def test_a_single_layer_is_the_first(cohort, law):
    assert distribution(fact("attn.q", 0, 1), law, {"cohort": cohort}).std == pytest.approx(
        distribution(fact("attn.q", 0, 5), law, {"cohort": cohort}).std
    )


@pytest.mark.parametrize("law", SPECTRAL)
def test_without_a_file_the_shipped_cohort_is_read(law):
    assert distribution(fact("mlp.up"), law, {}).std > 0


@pytest.mark.parametrize(
    "options",
    [{"strength": -1.0}, {"strength": float("inf")}, {"direction": "middle"}, {"cohort": "a\0b"}, {"cohort": 3}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=f"option '{next(iter(options))}' of law"):
        InitConfig(law="realistic", **options)
