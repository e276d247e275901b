import math

import pytest
import torch
from scipy.integrate import trapezoid

from seedbed.measure.density import density, entry_sample, z_scores


def test_density_of_normal_entries():
    sample = entry_sample(0.02 * torch.randn(400, 300, generator=torch.Generator().manual_seed(0)))
    found = density(sample, entries=120_000)
    assert (found.entries, found.sampled, found.problem) == (120_000, 9973, None)
    assert trapezoid(found.density, found.at) == pytest.approx(1, abs=1e-3)
    peak = found.density[len(found.at) // 2 - 40 : len(found.at) // 2 + 40]
    # Scott's bandwidth widens a normal density by sqrt(1 + k^(-2/5))
    std = 0.02 * math.sqrt(1 + 9973**-0.4)
    assert max(peak) == pytest.approx(1 / (std * math.sqrt(2 * math.pi)), rel=0.05)
    assert found.bandwidth == pytest.approx(0.02 * 9973**-0.2, rel=0.03)


def test_density_by_hand():
    """Two values are two kernels of bandwidth 2^(-1/5) standard deviations."""
    found = density(torch.tensor([-1.0, 1.0]), entries=2, points=3)
    h = math.sqrt(2) * 2**-0.2
    assert found.bandwidth == pytest.approx(h)
    assert found.at[1] == pytest.approx(0, abs=1e-12)
    assert found.density[1] == pytest.approx(math.exp(-1 / (2 * h * h)) / (h * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("scale", [1e-38, 1e30])
def test_density_at_any_scale(scale):
    sample = torch.randn(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, scaled = density(sample, 500), density(sample * scale, 500)
    assert scaled.density == pytest.approx([value / scale for value in plain.density], rel=1e-6)


def test_far_values_do_not_stretch_the_grid():
    sample = torch.randn(5000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sample[0] = 1e3
    found = density(sample, 5000)
    assert found.at[-1] == pytest.approx(float(sample.mean() + 5 * sample.std()))


def test_no_density_without_two_finite_values():
    assert "equal" in (density(torch.full((10,), 2.0), 10).problem or "")
    assert "equal" in (density(torch.tensor([1.0]), 1).problem or "")
    broken = density(torch.tensor([1.0, math.nan, math.inf]), 3)
    assert broken.problem == "2 of 3 sampled entries are NaN or infinite"
    assert (broken.at, broken.bandwidth) == ((), None)


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_a_sample_falls_into_every_column(columns):
    sample = entry_sample(torch.arange(columns).expand(40 * columns, -1), count=997)
    assert len(sample) == 997
    assert len(sample.unique()) == columns


def test_a_small_tensor_is_taken_whole():
    assert entry_sample(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)).tolist() == [1, 2, 3, 4]


def test_z_scores():
    assert z_scores([1.0, 3.0]) == [-1, 1]
    assert z_scores([2.0, 4.0, 6.0]) == pytest.approx([-math.sqrt(1.5), 0, math.sqrt(1.5)])
    assert z_scores([0.3, 0.3, 0.3]) is None
    assert z_scores([0.1 + 0.2, 0.3]) is None  # equal but for rounding
    assert z_scores([5.0]) is None
    assert z_scores([]) is None
