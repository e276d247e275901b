import math

import pytest
import torch

from seedbed.measure import singular
from seedbed.measure.spectra import (
    energy_rank,
    entropy_rank,
    gaussian_stats,
    matrix_stats,
    row_cosine,
    spectrum,
    stable_rank,
    stacked,
)

SPECTRAL = ("spectral", "stable_rank", "entropy_rank", "er90", "er95", "er99", "condition", "row_cosine")


def with_spectrum(values: list[float], m: int, n: int) -> torch.Tensor:
    """An m x n matrix with the given singular values."""
    generator = torch.Generator().manual_seed(3)
    left = torch.linalg.qr(torch.randn(m, len(values), generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(n, len(values), generator=generator, dtype=torch.float64)).Q
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right.T


@pytest.mark.parametrize("n", [2, 10, 20, 100])
def test_identity_has_full_rank_by_every_measure(n):
    stats = matrix_stats(torch.eye(n))
    assert stats.problem is None
    assert stats.stable_rank == pytest.approx(n, rel=1e-12)
    assert stats.entropy_rank == pytest.approx(n, rel=1e-12)
    assert stats.condition == pytest.approx(1, rel=1e-12)
    assert stats.row_cosine == 0
    assert stats.frobenius == pytest.approx(math.sqrt(n))
    assert stats.rms == pytest.approx(1 / math.sqrt(n))
    assert stats.mean == pytest.approx(1 / n)
    assert stats.std == pytest.approx(math.sqrt(1 / n - 1 / n**2))
    # ties: the least k with k/n >= q, whatever the last bit of q*n is
    for got, percent in ((stats.er90, 90), (stats.er95, 95), (stats.er99, 99)):
        assert got == -(-percent * n // 100) / n


def test_rank_one():
    stats = matrix_stats(torch.outer(torch.arange(1.0, 8.0), torch.tensor([1.0, -2.0, 4.0])))
    assert stats.stable_rank == pytest.approx(1, abs=1e-12)
    assert stats.entropy_rank == pytest.approx(1, abs=1e-12)
    assert (stats.er90, stats.er99) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert stats.condition == math.inf
    assert stats.row_cosine == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (9, 4), (4, 300)])
def test_prescribed_spectrum(m, n):
    stats = matrix_stats(with_spectrum([4.0, 2.0, 2.0, 1.0], m, n))
    assert stats.spectral == pytest.approx(4)
    assert stats.frobenius == pytest.approx(5)
    assert stats.rms == pytest.approx(5 / math.sqrt(m * n))
    assert stats.stable_rank == pytest.approx(25 / 16)
    shares = [4 / 9, 2 / 9, 2 / 9, 1 / 9]
    assert stats.entropy_rank == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)))
    # energies 16, 4, 4, 1 of 25: 0.64, 0.80, 0.96, 1
    assert (stats.er90, stats.er95, stats.er99) == (0.75, 0.75, 1.0)
    assert stats.condition == pytest.approx(4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_agrees_with_a_float64_decomposition(dtype):
    weight = (0.02 * torch.randn(96, 40, generator=torch.Generator().manual_seed(0))).to(dtype)
    values = torch.linalg.svd(weight.double(), full_matrices=False).S
    stats = matrix_stats(weight)
    energy = values.square().cumsum(0) / values.square().sum()
    assert stats.stable_rank == pytest.approx(float(values.square().sum() / values[0] ** 2), rel=1e-6)
    assert stats.condition == pytest.approx(float(values[0] / values[-1]), rel=1e-6)
    assert stats.er95 == (int((energy < 0.95).sum()) + 1) / 40
    shares = values / values.sum()
    assert stats.entropy_rank == pytest.approx(float(torch.exp(-(shares * shares.log()).sum())), rel=1e-6)


def test_scale_changes_no_rank():
    weight = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    base, tiny = matrix_stats(weight), matrix_stats(weight * 1e-30)
    for field in ("stable_rank", "entropy_rank", "er90", "er99", "condition", "row_cosine"):
        assert getattr(tiny, field) == pytest.approx(getattr(base, field), rel=1e-5)


def test_case_49_not_finite():
    weight = torch.ones(3, 4)
    weight[1, 2] = math.nan
    weight[0, 0] = math.inf
    stats = matrix_stats(weight)
    assert stats.problem == "2 of 12 entries are NaN or infinite"
    assert all(getattr(stats, field) is None for field in (*SPECTRAL, "mean", "std", "min", "max", "rms", "frobenius"))


def test_case_49_zero_matrix():
    stats = matrix_stats(torch.zeros(3, 4))
    assert "zero" in (stats.problem or "")
    assert (stats.std, stats.frobenius) == (0, 0)
    assert all(getattr(stats, field) is None for field in SPECTRAL)


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_case_49_single_row_or_column(shape):
    stats = matrix_stats(torch.full(shape, 2.0))
    assert "single row or column" in (stats.problem or "")
    assert stats.rms == pytest.approx(2)
    assert stats.spectral == stats.frobenius == pytest.approx(math.sqrt(20))
    assert all(getattr(stats, field) is None for field in SPECTRAL if field != "spectral")


def test_case_49_complex_entries_lose_no_part_silently():
    stats, values = spectrum(torch.full((3, 4), 1 + 2j))
    assert "complex" in (stats.problem or "") and values is None
    assert all(getattr(stats, field) is None for field in (*SPECTRAL, "mean", "std", "min", "max", "rms", "frobenius"))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 4)])
def test_case_49_not_a_matrix(shape):
    stats = matrix_stats(torch.ones(shape))
    assert stats.problem
    assert stats.frobenius is None


def test_singular_by_a_duplicated_column():
    weight = torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
    weight[:, 4] = weight[:, 0]
    assert matrix_stats(weight).condition == math.inf


def test_row_cosine_by_hand_and_without_zero_rows():
    weight = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, -2.0]])
    # pairs: 45 degrees, 90 degrees, 135 degrees
    assert row_cosine(weight) == pytest.approx((0.5**0.5 + 0 + 0.5**0.5) / 3)
    assert row_cosine(torch.tensor([[1.0, 2.0], [0.0, 0.0]])) is None


def test_zero_rows_are_counted_over_all_rows(monkeypatch):
    monkeypatch.setattr(singular, "BLOCK", 60)
    weight = torch.randn(3000, 20, generator=torch.Generator().manual_seed(5))
    weight[7::100] = 0
    weight[:, 0] = 0
    assert matrix_stats(weight).zero_rows == 30  # more than are among the rows of the mean cosine
    assert matrix_stats(weight[:5]).zero_rows == 0
    assert matrix_stats(torch.zeros(3, 4)).zero_rows == 3


def test_row_cosine_samples_tall_tables():
    weight = torch.randn(5000, 16, generator=torch.Generator().manual_seed(2))
    assert row_cosine(weight) == pytest.approx(row_cosine(weight, max_rows=5000), rel=0.02)


@pytest.mark.parametrize(("m", "n"), [(192, 192), (384, 128)])
def test_gaussian_follows_marchenko_pastur(m, n):
    stats = gaussian_stats(m, n)
    assert stats == gaussian_stats.__wrapped__(m, n)  # the same draws each time
    r, aspect = min(m, n), min(m, n) / max(m, n)
    # edges of the law: s_1^2 -> max(m,n) (1 + sqrt(aspect))^2, and ||W||_F^2 -> mn
    assert stats.stable_rank == pytest.approx(r / (1 + math.sqrt(aspect)) ** 2, rel=0.05)
    # ER@99 from the law's quantiles
    low, high = (1 - math.sqrt(aspect)) ** 2, (1 + math.sqrt(aspect)) ** 2
    x = torch.linspace(low, high, 200_001, dtype=torch.float64)[1:-1]
    density = torch.sqrt((high - x) * (x - low)) / x
    density, energy = density.flip(0).cumsum(0), (density * x).flip(0).cumsum(0)
    share = float(density[int((energy < 0.99 * energy[-1]).sum())] / density[-1])
    assert stats.er99 == pytest.approx(share, abs=1.5 / r)


def test_energy_and_entropy_on_plain_values():
    values = torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert energy_rank(values, 0.90) == 0.5  # exactly 9 of 10
    assert energy_rank(values, 0.91) == 1.0
    assert stable_rank(values) == pytest.approx(10 / 9)
    assert entropy_rank(values) == pytest.approx(4 / 3**0.75)


def test_entries_in_blocks(monkeypatch):
    monkeypatch.setattr(singular, "BLOCK", 60)
    weight = torch.arange(3000.0).view(150, 20) * 3e5 - 7e7  # blocks of three rows with means of their own
    stats, values = spectrum(weight)
    matrix = weight.double()
    assert stats.mean == pytest.approx(float(matrix.mean()), rel=1e-12)
    assert stats.std == pytest.approx(float(matrix.std(correction=0)), rel=1e-12)
    assert (stats.min, stats.max) == (float(matrix.min()), float(matrix.max()))
    assert stats.frobenius == pytest.approx(float(torch.linalg.vector_norm(matrix)), rel=1e-12)
    assert values is not None and stats.stable_rank == stable_rank(values)
    assert len(values) == 20


def test_no_spectrum_where_there_is_a_problem():
    for weight in (torch.zeros(3, 3), torch.ones(1, 4), torch.full((3, 3), math.nan), torch.ones(3)):
        stats, values = spectrum(weight)
        assert stats.problem and values is None


def test_a_long_table_is_not_copied_whole(monkeypatch):
    """Blocks alone are converted; the rows of the mean cosine are chosen before."""
    weight = torch.randn(5000, 16, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)
    weight[:, 1] = weight[:, 0]
    monkeypatch.setattr(singular, "BLOCK", 1600)
    largest = []
    real = torch.Tensor.to

    def watched(self, *args, **kwargs):
        largest.append(self.numel())
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", watched)
    assert matrix_stats(weight).condition == math.inf
    assert max(largest) <= 1024 * 16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_extremes_of_half_precision(dtype):
    big, tiny = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    for number in (big, tiny):
        stats = matrix_stats(torch.tensor([[number, 0], [0, -number], [0, 0]], dtype=dtype))
        number = float(torch.tensor(number, dtype=dtype))
        assert (stats.stable_rank, stats.condition, stats.spectral) == (pytest.approx(2), 1, number)
        assert stats.frobenius == pytest.approx(number * math.sqrt(2))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool])
def test_numbers_of_a_quantiser_are_no_weights(dtype):
    stats = matrix_stats(torch.eye(3).to(dtype))
    assert (stats.problem or "").startswith(f"not floating point but {str(dtype)[6:]}:")
    assert all(getattr(stats, field) is None for field in (*SPECTRAL, "mean", "std", "min", "max", "rms", "frobenius"))


def test_blocks_below_each_other():
    one = torch.eye(2)
    assert stacked([one]) is one
    mixed = stacked([one, (2 * one).to(torch.float8_e4m3fn)])
    assert (mixed.dtype, mixed.tolist()) == (torch.float64, [[1, 0], [0, 1], [2, 0], [0, 2]])
    assert matrix_stats(stacked([one, one.to(torch.int8)])).rms is None
