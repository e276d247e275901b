from itertools import pairwise

import pytest
import torch

from seedbed.measure.cosine import cosine_map, evenly_spaced, mean_cosine, row_cosine, row_order, unit_rows
from seedbed.measure.singular import gram_of


def planted(groups: int, size: int, n: int, noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows along ``groups`` directions of either sign and some of none, shuffled; and the group of each."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(n, groups, generator=generator, dtype=torch.float64)).Q.T
    label = torch.arange(groups).repeat_interleave(size)
    sign = torch.where(torch.arange(groups * size) % 3 == 0, -1.0, 1.0)
    rows = directions[label] * sign[:, None] + noise * torch.randn(len(label), n, generator=generator)
    shuffled = torch.randperm(len(label), generator=generator)
    return rows[shuffled], (label + groups * (sign < 0))[shuffled]


def test_planted_groups_stand_together_and_their_signs_side_by_side():
    rows, label = planted(groups=4, size=12, n=64, noise=0.02)
    found = cosine_map(rows)
    order = label[list(found.rows)].tolist()
    changes = sum(a != b for a, b in pairwise(order))
    assert changes == len(set(order)) - 1  # each (group, sign) is one run
    cosines = torch.tensor(found.cosines)
    assert (cosines.diagonal(1).abs() > 0.9).sum() == len(rows) - 4  # signs of one direction are neighbours


def test_a_map_holds_the_cosines_of_its_rows():
    rows = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    found = cosine_map(rows)
    assert sorted(found.rows) == list(range(9))
    for i, a in enumerate(found.rows):
        for j, b in enumerate(found.rows):
            expected = torch.nn.functional.cosine_similarity(rows[a].double(), rows[b].double(), dim=0)
            assert found.cosines[i][j] == pytest.approx(float(expected), abs=1e-12)
    assert (found.total_rows, found.zero_rows) == (9, 0)


def test_a_map_counts_zero_rows_and_takes_evenly_spaced_ones():
    rows = torch.zeros(100, 3)
    rows[::33] = torch.tensor([1.0, 0, 0])
    found = cosine_map(rows, max_rows=4)
    assert (sorted(found.rows), found.total_rows, found.zero_rows) == ([0, 33, 66, 99], 100, 0)
    assert cosine_map(rows, max_rows=100).zero_rows == 96
    empty = cosine_map(torch.zeros(3, 2))
    assert (empty.rows, empty.cosines, empty.zero_rows) == ((), (), 3)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_few_rows_keep_their_order(k):
    assert row_order(torch.eye(k, dtype=torch.float64)).tolist() == list(range(k))


def test_the_map_of_rows_does_not_depend_on_scale():
    rows = torch.randn(20, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    scales = 10.0 ** torch.arange(-200, 200, 20, dtype=torch.float64)
    torch.testing.assert_close(unit_rows(rows * scales[:, None])[0], unit_rows(rows)[0])


def test_mean_of_a_gram_matrix_is_the_mean_over_rows():
    for m, n in ((6, 6), (6, 40)):
        rows = torch.randn(m, n, generator=torch.Generator().manual_seed(3))
        rows[2] = 0
        assert mean_cosine(gram_of(rows).lower) == pytest.approx(row_cosine(rows), rel=1e-12)
    assert mean_cosine(gram_of(torch.tensor([[1.0, 2.0], [0.0, 0.0]])).lower) is None


def test_evenly_spaced():
    assert evenly_spaced(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert evenly_spaced(101, 3).tolist() == [0, 50, 100]
