"""The numbers of S0 section 2.1 at its own width, and what they become at small ones."""

import pytest
import torch

from seedbed.measure.residual import masking_ratio


def embedded(d_model: int, gamma: float) -> torch.Tensor:
    """Second moments, [2000], of embedded tokens drawn from N(0, d^-2gamma)."""
    draws = torch.randn(2000, d_model, generator=torch.Generator().manual_seed(0))
    return (draws * d_model**-gamma).square().mean(-1)


def percent(d_model: int, gamma: float, eps: float) -> int:
    return round(100 * float(masking_ratio(embedded(d_model, gamma), eps).mean()))


@pytest.mark.parametrize(("gamma", "second_moment"), [(0.5, 4.88e-4), (1.0, 2.38e-7)])
def test_second_moment_at_2048(gamma, second_moment):
    assert float(embedded(2048, gamma).mean()) == pytest.approx(second_moment, rel=3e-3)


@pytest.mark.parametrize(("gamma", "masked"), [(0.5, 2), (0.6, 9), (0.755, 50), (1.0, 98)])
def test_usual_eps_at_2048(gamma, masked):
    assert percent(2048, gamma, 1e-5) == masked


def test_small_eps_masks_nothing_at_2048():
    assert float(masking_ratio(embedded(2048, 1.0), 1e-12).max()) < 1e-5


@pytest.mark.parametrize(("d_model", "masked"), [(32, 1), (64, 4), (128, 14)])
def test_small_widths_hide_the_effect(d_model, masked):
    assert percent(d_model, 1.0, 1e-5) == masked


def test_the_eps_that_brings_it_back_at_64():
    eps = 41.9 / 64**2
    assert eps == pytest.approx(1e-2, rel=0.03)
    assert percent(64, 1.0, eps) == 98
    assert percent(64, 0.5, eps) == 40
