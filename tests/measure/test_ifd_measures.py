import math

import numpy as np
import pytest
import torch

from seedbed.measure.ifd import correlation, running_median, summary, tail_means


def test_the_last_losses_of_each_row_on_either_side_of_padding():
    losses = torch.tensor(
        [[0.0, 9.0, 1.0, 2.0, 7.0, 7.0], [7.0, 7.0, 0.0, 9.0, 1.0, 2.0], [0.0, 4.0, 5.0, 6.0, 7.0, 8.0]]
    )
    doc_ids = torch.tensor([[0, 0, 0, 0, -1, -1], [-1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    assert tail_means(losses, doc_ids, torch.tensor([2, 2, 5])).tolist() == [1.5, 1.5, 6.0]


def test_a_loss_outside_the_tail_may_be_anything():
    losses = torch.tensor([[math.nan, 1.0, math.inf]])
    assert tail_means(losses, torch.tensor([[0, 0, -1]]), torch.tensor([1])).tolist() == [1.0]


def test_a_summary_by_hand():
    found = summary([0.5, 1.0, 1.5, 2.0])
    assert (found.n, found.mean, found.median) == (4, 1.25, 1.25)
    assert found.std == pytest.approx(math.sqrt((0.75**2 + 0.25**2) * 2 / 3))
    assert (found.lowest, found.q25, found.q75, found.highest) == (0.5, 0.875, 1.625, 2.0)
    assert found.above_one == 0.5  # 1 itself is not above 1


def test_a_summary_of_one_and_of_none():
    one, none = summary([2.0]), summary([])
    assert (one.n, one.mean, one.above_one) == (1, 2.0, 1.0) and math.isnan(one.std)
    assert none.n == 0 and math.isnan(none.mean) and math.isnan(none.above_one)


def test_correlations_by_hand():
    # deviations of x: -1, 0, 1; of y: -2, -1, 3
    found = correlation([1.0, 2.0, 3.0], [0.0, 1.0, 5.0])
    assert found.pearson == pytest.approx(5 / math.sqrt(2 * 14))
    assert found.spearman == pytest.approx(1.0)
    back = correlation([1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 3.0, 1.0])  # rank differences 3, 0, 0, 3
    assert back.spearman == pytest.approx(1 - 6 * 18 / (4 * 15))
    assert back.spearman_p is not None and 0 < back.spearman_p < 1


@pytest.mark.parametrize(("x", "y"), [([1.0, 2.0], [2.0, 1.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([], [])])
def test_no_correlation_of_few_or_of_a_constant(x, y):
    found = correlation(x, y)
    assert (found.n, found.pearson, found.pearson_p, found.spearman, found.spearman_p) == (len(x), *[None] * 4)


def test_a_running_median_goes_in_the_order_of_x():
    x, y = running_median([4.0, 1.0, 3.0, 2.0], [40.0, 10.0, 0.0, 20.0], 3)
    assert x.tolist() == [2.0, 3.0]
    assert y.tolist() == [10.0, 20.0]  # of 10, 20, 0 and of 20, 0, 40
    assert all(len(part) == 0 for part in running_median([1.0], [1.0], 3))
    assert isinstance(x, np.ndarray)
