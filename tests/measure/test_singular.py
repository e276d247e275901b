import pytest
import torch

from seedbed.measure import singular
from seedbed.measure.singular import gram_of, lower_gram, power_of_two, singular_values

EPS = torch.finfo(torch.float64).eps


def gaussian(m: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(m, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_spectrum(values: torch.Tensor, m: int, n: int) -> torch.Tensor:
    left, right = torch.linalg.qr(gaussian(m, len(values), 1)).Q, torch.linalg.qr(gaussian(n, len(values), 2)).Q
    return left @ torch.diag(values.double()) @ right.T


def spectra(r: int) -> dict[str, torch.Tensor]:
    place = torch.arange(r, dtype=torch.float64) / r
    few = torch.ones(r, dtype=torch.float64)
    few[r // 2 :] = 0
    one_small = torch.ones(r, dtype=torch.float64)
    one_small[-1] = 1e-4
    return {
        "exp(-5i/n)": torch.exp(-5 * place),
        "condition 1e6": 10 ** (-6 * place * r / (r - 1)),
        "condition 15000, in blocks": torch.where(place < 0.5, 1.0, 1 / 15_000.0),
        "rank r/2": few,
        "one small": one_small,
        "equal": torch.full((r,), 3.0, dtype=torch.float64),
    }


@pytest.mark.parametrize(("m", "n"), [(48, 48), (200, 48), (48, 500), (2, 2), (2000, 2)])
@pytest.mark.parametrize("name", list(spectra(2)))
def test_agrees_with_a_float64_decomposition(m, n, name):
    matrix = with_spectrum(spectra(min(m, n))[name], m, n)
    direct = torch.linalg.svdvals(matrix)
    noise = max(m, n) * EPS * direct[0]
    torch.testing.assert_close(singular_values(matrix), direct, rtol=1e-6, atol=float(noise))


@pytest.mark.parametrize(("m", "n"), [(96, 96), (256, 64), (1, 40), (40, 1), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_agrees_on_random_matrices_of_any_type_and_layout(m, n, dtype):
    matrix = (0.02 * gaussian(m, n)).to(dtype)
    direct = torch.linalg.svdvals(matrix.double())
    torch.testing.assert_close(singular_values(matrix), direct, rtol=1e-6, atol=0)
    torch.testing.assert_close(singular_values(matrix.T.contiguous().T), direct, rtol=1e-6, atol=0)


def test_prescribed_spectrum_comes_back():
    values = torch.exp(-5 * torch.arange(64, dtype=torch.float64) / 64)
    torch.testing.assert_close(singular_values(with_spectrum(values, 64, 96)), values, rtol=1e-12, atol=0)


def test_the_gram_matrix_serves_down_to_its_limit_and_no_further(monkeypatch):
    direct = []
    monkeypatch.setattr(singular, "_triangular", lambda tall, scale: direct.append(1) or tall.double() / scale)
    for condition, falls_back in ((1.5e4, False), (1.7e4, True)):
        values = torch.ones(20, dtype=torch.float64)
        values[-1] = 1 / condition
        singular_values(with_spectrum(values, 20, 20))
        assert bool(direct) == falls_back


def test_the_limit_rises_with_the_size_and_long_square_matrices_go_direct(monkeypatch):
    seen = []
    monkeypatch.setattr(singular, "_triangular", lambda tall, scale: seen.append(1) or torch.eye(2))
    cases = (((1024, 1024), 6e-9, False), ((2048, 2049), 6e-9, True), ((2048, 2048), 1, False), ((2049, 2049), 1, True))
    for shape, least, falls_back in cases:
        seen.clear()
        squares = torch.linspace(least, 1, min(shape)).double()
        monkeypatch.setattr(torch.linalg, "eigvalsh", lambda lower, squares=squares: squares)
        singular_values(torch.ones(shape), singular.Gram(torch.empty(min(shape), min(shape)), 1.0))
        assert bool(seen) == falls_back


def test_the_error_bound_of_the_gram_matrix_holds():
    """Half of eps times the squared condition number, 17 times: 5e-7 at the limit."""
    for condition in (1e2, 1e3, 1e4):
        for values in (condition ** -torch.linspace(0, 1, 200), torch.where(torch.arange(200) < 9, 1, 1 / condition)):
            matrix = with_spectrum(values.double(), 1000, 200)
            error = (singular_values(matrix) / torch.linalg.svdvals(matrix) - 1).abs().max()
            assert error < 17 * EPS / 2 * condition**2


def test_blocks_change_nothing(monkeypatch):
    matrix = gaussian(300, 40)
    whole = singular_values(matrix)
    matrix[:, 3] = matrix[:, 4]
    singular_whole = singular_values(matrix)
    matrix = gaussian(300, 40)
    monkeypatch.setattr(singular, "BLOCK", 11 * 40)
    torch.testing.assert_close(singular_values(matrix), whole, rtol=1e-12, atol=0)
    gram = lower_gram(matrix, width=7)
    torch.testing.assert_close(gram.tril(), (matrix.T @ matrix).tril(), rtol=1e-12, atol=1e-12)
    matrix[:, 3] = matrix[:, 4]
    torch.testing.assert_close(singular_values(matrix), singular_whole, rtol=1e-12, atol=1e-13)
    assert singular_whole[-1] < 1e-12 * singular_whole[0]


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-40, 1.0, 1e40, 1e300])
def test_no_scale_is_out_of_range(scale):
    matrix = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]], dtype=torch.float64) * scale
    torch.testing.assert_close(singular_values(matrix) / scale, torch.tensor([3.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_largest_and_smallest_numbers_of_a_type(dtype):
    for number in (torch.finfo(dtype).max, torch.finfo(dtype).tiny):
        matrix = torch.tensor([[number, 0], [0, number], [0, 0]], dtype=dtype)
        assert singular_values(matrix).tolist() == [float(matrix[0, 0])] * 2


def test_zero_and_zero_rows():
    assert singular_values(torch.zeros(3, 5)).tolist() == [0, 0, 0]
    matrix = gaussian(12, 5)
    padded = torch.cat([matrix, torch.zeros(8, 5)])
    torch.testing.assert_close(singular_values(padded), singular_values(matrix))


def test_the_gram_matrix_is_of_rows_up_to_square_and_of_columns_above():
    for m, n in ((3, 5), (4, 4), (5, 3)):
        matrix = gaussian(m, n)
        gram = gram_of(matrix)
        full = matrix @ matrix.T if m <= n else matrix.T @ matrix
        torch.testing.assert_close(gram.lower.tril() * gram.scale**2, full.tril())


def test_power_of_two():
    assert [power_of_two(x) for x in (0.0, 1.0, 1.5, 2.0, 0.75, 5e-324)] == [1, 1, 1, 2, 0.5, 5e-324]
