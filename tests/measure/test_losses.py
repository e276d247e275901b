import math

import pytest
import torch

from seedbed.measure.losses import bits_per_byte, logit_stats, perplexity


def test_bits_per_byte_counts_raw_bytes():
    assert bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)
    # a uniform guess over 256 byte values is 8 bits per byte, for text of any script
    text = "种子 🌱"
    n_bytes = len(text.encode())
    assert n_bytes == 11
    assert bits_per_byte(n_bytes * math.log(256), n_bytes) == pytest.approx(8)
    with pytest.raises(ValueError, match="zero bytes"):
        bits_per_byte(1.0, 0)


def test_perplexity():
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1e6) == math.inf


def test_logit_stats_of_zero_logits():
    stats = logit_stats(torch.zeros(2, 3, 100))
    assert stats.variance == 0
    assert stats.log_z == pytest.approx(math.log(100), rel=1e-6)
    assert stats.entropy == pytest.approx(stats.uniform_loss, rel=1e-6)


def test_logit_stats_by_hand():
    stats = logit_stats(torch.tensor([[1.0, -3.0], [0.0, 0.0]]))
    assert stats.variance == pytest.approx((4 + 0) / 2)
    assert stats.max_abs == 3
    # a forbidden token has probability zero, not an entropy of NaN
    assert logit_stats(torch.tensor([[0.0, 0.0, -math.inf]])).entropy == pytest.approx(math.log(2), rel=1e-6)
    with pytest.raises(ValueError, match="zero tokens"):
        logit_stats(torch.zeros(0, 5))
