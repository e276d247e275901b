import math

import numpy as np
import pytest

from seedbed.data.sketch import most_unequal, sketches, unequal


@pytest.mark.parametrize("permutations", [16, 17, 100, 128])
def test_entries_are_unequal_in_their_low_bits(permutations):
    a, b = np.random.default_rng(0).integers(0, 2**32, (2, 50, permutations), np.uint32)
    b[:, ::3] = a[:, ::3] ^ 0x10  # equal in four bits
    expected = ((a & 0xF) != (b & 0xF)).sum(axis=1).tolist()
    assert unequal(sketches(a), sketches(b)).tolist() == expected
    assert unequal(sketches(a), sketches(a[:1]))[0] == 0
    assert sketches(a).shape == (50, -(-permutations // 16))


@pytest.mark.parametrize("permutations, threshold", [(16, 0.3), (128, 0.7), (128, 0.95), (1024, 0.7), (1024, 0.99)])
def test_estimates_rule_out_no_pair_at_the_threshold(permutations, threshold):
    least = permutations - most_unequal(permutations, threshold)
    likely = threshold + (1 - threshold) / 16  # entries of a sketch agree by accident, too

    def below(limit: int) -> float:
        logs = (
            math.lgamma(permutations + 1) - math.lgamma(k + 1) - math.lgamma(permutations - k + 1)
            + k * math.log(likely) + (permutations - k) * math.log1p(-likely)
            for k in range(limit)
        )  # fmt: skip
        return sum(map(math.exp, logs))

    assert below(least) <= 3e-7 < below(least + 1)
    assert most_unequal(permutations, 1.0) == 0
