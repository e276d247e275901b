import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seedbed.errors import GuardStop
from seedbed.optim import muon
from seedbed.optim.muon import Muon, is_orthogonal, orthogonalize, quintics


def matrix(singular_values, m, n, seed=0):
    """[m, n] in fp64 with the given singular values, and its factors."""
    generator = torch.Generator().manual_seed(seed)
    r = len(singular_values)
    left = torch.linalg.qr(torch.randn(m, r, dtype=torch.float64, generator=generator))[0]
    right = torch.linalg.qr(torch.randn(n, r, dtype=torch.float64, generator=generator))[0]
    s = torch.as_tensor(singular_values, dtype=torch.float64)
    return left * s @ right.T, left, s, right


SPECTRA = {
    "flat": lambda r: torch.ones(r),
    "power law": lambda r: torch.logspace(0, -4, r),
    "rank one": lambda r: torch.eye(r)[0],
    "two clusters": lambda r: torch.where(torch.arange(r) < (r + 1) // 2, 1.0, 2.1e-3 * ((r + 1) // 2) ** 0.5),
    "tail below the floor": lambda r: torch.where(torch.arange(r) < (r + 1) // 2, 1.0, 1e-6),
}


def directions(update, gradient, left, s, right):
    """Gains of the directions of the gradient that count, and all singular values of the update."""
    gains = (left.T @ update.double() @ right).diagonal()
    return gains[s >= 2e-3 * gradient.norm()], torch.linalg.svdvals(update.double())


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(("m", "n"), [(64, 64), (1, 50), (50, 1), (200, 48), (48, 200), (1, 1), (256, 256)])
def test_singular_values_lie_in_the_stated_range(m, n, spectrum):
    gradient, left, s, right = matrix(SPECTRA[spectrum](min(m, n)), m, n)
    update = orthogonalize(gradient.float())
    gains, singular = directions(update, gradient, left, s, right)
    assert update.shape == gradient.shape
    assert gains.min() >= 0.7
    assert gains.max() <= 1.2
    assert singular.max() <= 1.2
    assert is_orthogonal(update, gradient.float(), 5)


@settings(max_examples=40)
@given(
    m=st.integers(1, 40), n=st.integers(1, 40), power=st.floats(0, 4), scale=st.floats(-30, 30), seed=st.integers(0, 99)
)
def test_singular_values_lie_in_the_stated_range_over_shapes_spectra_and_scales(m, n, power, scale, seed):
    r = min(m, n)
    gradient, left, s, right = matrix(torch.arange(1, r + 1, dtype=torch.float64) ** -power, m, n, seed)
    update = orthogonalize((gradient * 10**scale).float())
    gains, singular = directions(update, gradient, left, s, right)
    assert gains.min() >= 0.7
    assert singular.max() <= 1.2
    assert is_orthogonal(update, (gradient * 10**scale).float(), 5)


def test_the_composed_quintics_keep_what_they_promise():
    x = torch.logspace(-3, 0, 20_000, dtype=torch.float64)
    errors = []
    for steps in (1, 3, 5, 6, 8, 12):
        coefficients, error = quintics(steps)
        y = x
        for a, b, c in coefficients:
            y = a * y + b * y**3 + c * y**5
        assert (y - 1).abs().max() <= error + 1e-9
        errors.append((y - 1).abs().max().item())
    assert errors == sorted(errors, reverse=True)  # more steps, closer to orthogonal
    assert quintics(5)[1] < 0.13
    assert errors[-1] < 1e-9


def test_five_steps_stay_in_range_in_bf16(monkeypatch):
    """The type that CUDA iterates in, emulated here."""
    unit = muon._unit
    monkeypatch.setattr(muon, "_unit", lambda x: unit(x).bfloat16())
    for name, spectrum in SPECTRA.items():
        gradient, left, s, right = matrix(spectrum(48), 48, 64)
        update = orthogonalize(gradient.float())
        gains, singular = directions(update, gradient, left, s, right)
        assert update.dtype == torch.bfloat16
        assert gains.min() >= 0.7, name
        assert singular.max() <= 1.2, name


def test_scale_does_not_matter_and_zero_stays_zero():
    gradient = torch.randn(24, 40, generator=torch.Generator().manual_seed(0))
    for scale in (1e-9, 1e-30, 1e30):
        torch.testing.assert_close(orthogonalize(gradient * scale), orthogonalize(gradient), atol=1e-4, rtol=0)
    assert not orthogonalize(torch.zeros(8, 5)).any()
    assert is_orthogonal(torch.zeros(8, 5), torch.zeros(8, 5), 5)


def test_an_update_that_is_not_orthogonal_is_noticed():
    gradient, *_ = matrix(SPECTRA["power law"](32), 32, 48)
    gradient = gradient.float()
    update = orthogonalize(gradient)
    assert not is_orthogonal(gradient / gradient.norm(), gradient, 5)
    assert not is_orthogonal(update * 1.6, gradient, 5)
    assert not is_orthogonal(update * 0.5, gradient, 5)
    assert not is_orthogonal(torch.zeros_like(update), gradient, 5)
    assert not is_orthogonal(update.index_fill(0, torch.tensor([3]), float("nan")), gradient, 5)


def test_a_failed_iteration_stops_the_run(monkeypatch):
    weight = nn.Parameter(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)))
    weight.grad = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(muon, "orthogonalize", lambda matrix, steps: matrix * 1e-3)
    with pytest.raises(GuardStop, match="not orthogonal"):
        Muon([weight], lr=1e-2).step()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    good, broken = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))
    optimizer = Muon([good, broken], lr=1e-2, weight_decay=0.1)
    good.grad, broken.grad = torch.ones(3, 4), torch.ones(3, 4)
    broken.grad[1, 2] = bad
    with pytest.raises(GuardStop, match="not finite"):
        optimizer.step()
    assert (good == 1).all()
    assert (broken == 1).all()
    assert not optimizer.state[good]["momentum"].any()


def test_a_rank_without_rows_tells_the_others_where_they_listen(monkeypatch):
    """Its norm of nothing would be on the CPU, and ranks whose gradients are elsewhere would not hear of it."""
    weight = nn.Parameter(torch.zeros(0, 4, device="meta"))
    weight.grad = torch.zeros(0, 4, device="meta")
    told = []
    monkeypatch.setattr(Muon, "_everywhere", lambda _, sound: told.append(sound.device.type))
    with pytest.raises(GuardStop, match="not finite"):
        Muon([weight], lr=0.1).step()
    assert told == ["meta"]


def svd_muon(weight, gradients, lr, momentum, nesterov, weight_decay):
    """The definition of science section 3 with an exact polar factor, as the textbook writes it."""
    buffer = torch.zeros_like(weight)
    for gradient in gradients:
        buffer = momentum * buffer + gradient
        left, _, right = torch.linalg.svd(gradient + momentum * buffer if nesterov else buffer, full_matrices=False)
        weight = weight * (1 - lr * weight_decay) - lr * 0.2 * max(weight.shape) ** 0.5 * left @ right
    return weight


@pytest.mark.parametrize("nesterov", [True, False])
def test_many_iterations_agree_with_the_exact_definition(nesterov):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 9, dtype=torch.float64, generator=generator)
    gradients = torch.randn(4, 6, 9, dtype=torch.float64, generator=generator)
    weight = nn.Parameter(start.clone())
    optimizer = Muon([weight], lr=0.02, nesterov=nesterov, ns_steps=12, weight_decay=0.1)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    expected = svd_muon(start, gradients, 0.02, 0.95, nesterov, 0.1)
    torch.testing.assert_close(weight.data, expected, atol=1e-9, rtol=0)


def test_the_update_has_the_rms_of_an_adam_update():
    for shape in ((96, 96), (64, 256), (256, 64)):
        weight = nn.Parameter(torch.zeros(shape))
        weight.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        Muon([weight], lr=1.0).step()
        assert 0.17 <= weight.square().mean().sqrt() <= 0.23


def test_a_fused_matrix_moves_as_its_blocks_would():
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(28, 12, generator=generator)
    bounds = ((0, 12), (12, 16), (16, 28))
    fused = nn.Parameter(torch.zeros(28, 12))
    fused.grad = gradient.clone()
    Muon([{"params": [fused], "rows": [bounds]}], lr=0.1).step()
    for start, stop in bounds:
        alone = nn.Parameter(torch.zeros(stop - start, 12))
        alone.grad = gradient[start:stop].clone()
        Muon([alone], lr=0.1).step()
        assert torch.equal(fused[start:stop], alone)
    whole = nn.Parameter(torch.zeros(28, 12))
    whole.grad = gradient.clone()
    Muon([whole], lr=0.1).step()
    assert not torch.allclose(whole, fused, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 16), (16, 1), (1, 1)])
def test_vectors_in_the_shape_of_matrices(shape):
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.full(shape, 1e-9)
    Muon([weight], lr=1.0).step()
    assert torch.isfinite(weight).all()
    assert (weight < 0).all()


def test_a_zero_gradient_moves_nothing_but_decay():
    weight = nn.Parameter(torch.ones(4, 6))
    weight.grad = torch.zeros(4, 6)
    Muon([weight], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(weight.data, torch.full((4, 6), 0.95))


def test_bf16_weights_keep_fp32_momentum():
    weight = nn.Parameter(torch.ones(4, 6, dtype=torch.bfloat16))
    weight.grad = torch.ones(4, 6, dtype=torch.bfloat16)
    optimizer = Muon([weight], lr=0.1)
    optimizer.step()
    assert optimizer.state[weight]["momentum"].dtype == torch.float32
    assert (weight < 1).all()


def test_only_matrices_are_taken():
    with pytest.raises(ValueError, match="matrices"):
        Muon([nn.Parameter(torch.zeros(3))], lr=0.1)
