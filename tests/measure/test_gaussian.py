import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq

from seedbed.measure import gaussian
from seedbed.measure.gaussian import DRAWS, gaussian_cosine, gaussian_spectra
from seedbed.measure.spectra import gaussian_stats, matrix_stats


def marchenko_pastur(m: int, n: int) -> dict[str, float]:
    """Scale-free measures of a large Gaussian matrix, by integrals over the density of its squared values.

    The squares over max(m, n) have density sqrt((b - x)(x - a)) / (2 pi y x) on [a, b] = (1 -+ sqrt y)^2, y = r / max.
    The integrals are over t in x = 1 + y - 2 sqrt(y) cos t, where nothing is singular.
    """
    r, y = min(m, n), min(m, n) / max(m, n)

    def x(t: float) -> float:
        return 1 + y - 2 * math.sqrt(y) * math.cos(t)

    def mean(f, low=0.0) -> float:
        return quad(lambda t: f(x(t)) * 2 * math.sin(t) ** 2 / (math.pi * max(x(t), 1e-300)), low, math.pi)[0]

    root = mean(math.sqrt)
    entropy = mean(lambda s: -math.sqrt(s) / root * math.log(math.sqrt(s) / root) if s > 0 else 0)
    found = {"stable_rank": r / (1 + math.sqrt(y)) ** 2, "entropy_rank": r * math.exp(entropy)}
    energy = mean(lambda s: s)
    for name, share in (("er90", 0.9), ("er95", 0.95), ("er99", 0.99)):
        low = float(brentq(lambda t, wanted=share * energy: mean(lambda s: s, t) - wanted, 1e-9, math.pi))
        found[name] = mean(lambda s: 1.0, low)
    return found


def test_the_density_integrates_to_one():
    assert marchenko_pastur(300, 100)["er99"] < 1
    # of a square matrix: s is the quarter circle, mean s = 8 / (3 pi)
    assert marchenko_pastur(100, 100)["stable_rank"] == 25


@pytest.mark.parametrize(("m", "n"), [(512, 512), (200, 800), (800, 200), (5000, 256)])
def test_draws_agree_with_marchenko_pastur(m, n):
    stats, law = gaussian_stats(m, n), marchenko_pastur(m, n)
    r = min(m, n)
    for field in ("er90", "er95", "er99"):
        # a whole number of values: between the quantile and the next
        assert getattr(stats, field) == pytest.approx(law[field], abs=1 / r)
    assert stats.entropy_rank == pytest.approx(law["entropy_rank"], rel=2e-3)
    # s_1 lies under the edge, by the mean of Tracy and Widom's law in the units of Johnstone (2001)
    ends = math.sqrt(max(m, n) - 1) + math.sqrt(r)
    unit = ends * (1 / math.sqrt(max(m, n) - 1) + 1 / math.sqrt(r)) ** (1 / 3)
    assert stats.stable_rank == pytest.approx(m * n / (ends**2 - 1.2065 * unit), rel=0.01)
    assert stats.stable_rank == pytest.approx(law["stable_rank"], rel=0.05)


@pytest.mark.parametrize(("m", "n"), [(24, 24), (60, 20), (20, 60)])
def test_draws_agree_with_full_matrices(m, n):
    generator = torch.Generator().manual_seed(0)
    full = [matrix_stats(torch.randn(m, n, generator=generator)) for _ in range(200)]
    stats = gaussian_stats(m, n)
    for field in ("stable_rank", "entropy_rank", "er90", "er99", "row_cosine"):
        values = np.array([getattr(one, field) for one in full])
        error = values.std() / math.sqrt(len(values)) * 4 + 0.1 / min(m, n)
        assert getattr(stats, field) == pytest.approx(values.mean(), abs=error)
    assert stats.condition == pytest.approx(np.median([one.condition for one in full]), rel=0.3)


def test_condition_of_a_square_matrix_follows_edelmans_law():
    """P(condition / n < x) = exp(-2/x - 2/x^2) for large n (Edelman 1988)."""
    n = 256
    ends = gaussian_spectra(n, n)[1]
    ratio = ends[:, 0] / ends[:, 1] / n
    assert ratio.shape == (DRAWS,)
    for x in (1.5, 3.671, 12.0):
        expected = math.exp(-2 / x - 2 / x**2)
        assert np.mean(ratio < x) == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / DRAWS))


def test_a_spectrum_has_the_squares_of_its_matrix():
    spectra, ends = gaussian_spectra(400, 50)
    assert np.all(np.diff(spectra, axis=1) <= 0)
    assert np.mean(np.sum(spectra**2, axis=1)) == pytest.approx(400 * 50, rel=0.005)
    assert ends[: len(spectra), 0].tolist() == spectra[:, 0].tolist()


def test_ends_are_those_of_whole_spectra(monkeypatch):
    monkeypatch.setattr(gaussian, "SPECTRUM_ENTRIES", 0)
    few, ends = gaussian_spectra.__wrapped__(30, 20)
    monkeypatch.setattr(gaussian, "SPECTRUM_ENTRIES", 10**9)
    all_of_them, same = gaussian_spectra.__wrapped__(30, 20)
    assert (len(few), len(all_of_them)) == (8, DRAWS)
    np.testing.assert_allclose(ends, same, rtol=1e-9)


def test_wide_and_tall_share_their_spectrum_but_not_their_cosine():
    wide, tall = gaussian_stats(20, 60), gaussian_stats(60, 20)
    assert (wide.stable_rank, wide.condition) == (tall.stable_rank, tall.condition)
    assert (wide.row_cosine, tall.row_cosine) == (gaussian_cosine(60), gaussian_cosine(20))


def test_cosine_by_hand():
    assert gaussian_cosine(1) == pytest.approx(1)
    assert gaussian_cosine(2) == pytest.approx(2 / math.pi)  # mean |cos| of a uniform angle
    assert gaussian_cosine(3) == pytest.approx(1 / 2)  # a coordinate of a point on a sphere is uniform
    assert gaussian_cosine(1024) == pytest.approx(math.sqrt(2 / (math.pi * 1024)), rel=1e-3)


def test_a_single_row_has_a_problem_and_no_number():
    stats = gaussian_stats(1, 30)
    assert "single row or column" in (stats.problem or "")
    assert stats.stable_rank is None
