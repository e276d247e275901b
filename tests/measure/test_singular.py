import pytest
import torch
from scipy.sparse.linalg import ArpackNoConvergence

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


def test_the_limit_rises_with_the_size(monkeypatch):
    seen = []
    monkeypatch.setattr(singular, "_triangular", lambda tall, scale: seen.append(1) or torch.eye(2))
    for r, least, falls_back in ((1024, 6e-9, False), (2048, 6e-9, True), (2048, 9e-9, False), (1024, 3e-9, True)):
        seen.clear()
        squares = torch.linspace(1, least, r).double()
        monkeypatch.setattr(singular, "_eigenvalues", lambda lower, squares=squares: squares)
        monkeypatch.setattr(singular, "_least", lambda factor, count: None)
        singular_values(torch.ones(r, r), singular.Gram(torch.empty(r, r), 1.0))
        assert bool(seen) == falls_back


@pytest.fixture
def calls(monkeypatch):
    """Which ways were taken: how many values were asked of ``_least``, and "direct"."""
    taken, least, svdvals = [], singular._least, torch.linalg.svdvals
    monkeypatch.setattr(singular, "_least", lambda factor, count: taken.append(count) or least(factor, count))
    monkeypatch.setattr(torch.linalg, "svdvals", lambda matrix: taken.append("direct") or svdvals(matrix))
    return taken


def with_tiny(tiny: list[float], m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.linspace(2, 1, min(m, n), dtype=torch.float64)
    values[-len(tiny) :] = torch.tensor(sorted(tiny, reverse=True), dtype=torch.float64)
    return with_spectrum(values, m, n), values


TINY = {
    "condition 2e5": [1e-5],
    "condition 2e7": [1e-7],
    "condition 2e9": [1e-9],
    "condition 2e12": [1e-12],
    "two": [1e-5, 3e-8],
    "two equal": [1e-6, 1e-6],
    "far apart": [5e-5, 1e-13],
    "eight": [2.0**-k * 1e-5 for k in range(8)],
    "eight equal": [2e-6] * 8,
    "two clusters": [1e-9 * (1 + k * 1e-3) for k in range(4)] + [1e-5 * (1 + k * 1e-7) for k in range(4)],
    "every order": [10.0**-k for k in range(5, 13)],
}


@pytest.mark.parametrize("name", list(TINY))
def test_a_few_tiny_values_are_found_by_themselves(calls, name):
    size = 64 * len(TINY[name])
    for m, n in ((size, size), (size + 50, size), (size, size + 50)):
        calls.clear()
        matrix, values = with_tiny(TINY[name], m, n)
        found = singular_values(matrix)
        assert calls == [len(TINY[name])]
        direct = torch.linalg.svdvals(matrix)
        torch.testing.assert_close(found, direct, rtol=1e-6, atol=float(max(m, n) * EPS * direct[0]))
        torch.testing.assert_close(found, values, rtol=1e-6, atol=float(max(m, n) * EPS * direct[0]))
        assert (found.diff() <= 0).all()
        assert torch.equal(singular_values(matrix), found)  # the start vector is fixed
        assert torch.equal(singular_values(matrix * 2.0**-600), found * 2.0**-600)


def test_exact_tiny_values_of_a_triangular_matrix(calls):
    """[[1, 1], [0, t]] has singular values whose product is t and whose squares sum to 2 + t^2; beside them ones."""
    t, matrix = 1e-7, torch.eye(128, dtype=torch.float64)
    matrix[0, 1], matrix[1, 1] = 1, t
    found = singular_values(matrix)
    assert calls == [1]
    assert float(found[-1]) == pytest.approx(t / 2**0.5, rel=1e-9)
    assert float(found[0]) == pytest.approx(2**0.5, rel=1e-12)
    assert found[1:-1].tolist() == pytest.approx([1] * 126, rel=1e-12)


def test_gaussian_square_matrices_need_no_decomposition(calls):
    for seed in range(40):
        matrix = gaussian(96, 96, seed)
        matrix[0] = matrix[1] + 1e-4 * matrix[0]  # as near to singular as one of 1024 often is
        found = singular_values(matrix)
        torch.testing.assert_close(found, torch.linalg.svdvals(matrix), rtol=1e-6, atol=0)
    assert calls.count(1) > 10
    assert calls.count("direct") == 40  # those of this test


def test_more_than_a_few_are_decomposed(calls):
    for tiny, size, ways in (([1e-6] * 2, 127, ["direct"]), ([1e-6] * 2, 128, [2]), ([1e-6], 63, ["direct"])):
        calls.clear()
        singular_values(with_tiny(tiny, size, size)[0])
        assert calls == ways


@pytest.mark.parametrize("least", [0.0, 5e-324, 1e-200])
def test_what_cannot_be_inverted_is_decomposed(calls, least):
    values = torch.ones(64, dtype=torch.float64)
    values[-1] = least
    assert singular_values(torch.diag(values)).tolist() == pytest.approx(values.tolist(), abs=1e-300)
    assert calls == [1, "direct"]


@pytest.mark.parametrize("answer", ["missed", "not finite", "none", "no convergence"])
def test_values_that_do_not_join_the_others_are_not_taken(calls, monkeypatch, answer):
    matrix, values = with_tiny([1e-6, 1e-6], 128, 128)

    def wrong(operator, count, **rest):
        if answer == "no convergence":
            raise ArpackNoConvergence("%s %s", [], [])
        return torch.tensor([1e12, {"missed": 1.0, "not finite": torch.nan, "none": torch.inf}[answer]]).numpy()

    monkeypatch.setattr(singular, "eigsh", wrong)
    torch.testing.assert_close(singular_values(matrix), values, rtol=1e-6, atol=0)
    assert calls == [2, "direct"]


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
    gram = lower_gram(matrix)
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
