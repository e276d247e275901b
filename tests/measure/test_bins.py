"""Quantiles from counts in bins, against numpy's, over any batches."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedbed.measure.bins import OCTAVE, bins_of, largest, median

WIDTH = 2 ** (1 / OCTAVE) * (1 + 1e-9)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=40), st.integers(0, 40))
def test_quantiles_are_right_to_a_bin_whatever_the_batches(values, cut):
    parts = [bins_of(torch.tensor(part, dtype=torch.float64)) for part in (values[:cut], values[cut:])]
    together = dict(sum((Counter(part) for part in parts), Counter()))
    assert together == bins_of(torch.tensor(values, dtype=torch.float64))
    middle, most = np.quantile(values, 0.5, method="inverted_cdf"), max(values)
    assert middle / WIDTH <= median(together) <= middle * WIDTH
    assert most / WIDTH <= largest(together) <= most * WIDTH


def test_a_few_massive_numbers_do_not_move_the_median():
    values = torch.cat([torch.full((98,), 3.0), torch.tensor([1e4, 1e5])])
    assert float(values.mean()) > 1000
    assert median(bins_of(values)) == pytest.approx(3, rel=0.022)
    assert largest(bins_of(values)) == pytest.approx(1e5, rel=0.022)


def test_zeros_and_what_is_not_finite():
    assert bins_of(torch.tensor([0.0, 0.0, 1.0])) == {"-inf": 2, "0": 1}
    assert median({"-inf": 2, "0": 1}) == 0
    assert largest({"0": 1, "inf": 1}) == math.inf
    broken = bins_of(torch.tensor([math.nan, 1.0, math.nan]))
    assert broken == {"nan": 2, "0": 1}
    assert math.isnan(median(broken))
    assert math.isnan(largest(broken))
    assert math.isnan(median(bins_of(torch.tensor([]))))
