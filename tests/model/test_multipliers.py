"""Output multiplier and attention scale hold on every path that makes logits or attention."""

import math

import pytest
import torch
from torch.nn import functional as F

from seedbed.config.model import ModelConfig
from seedbed.init import initialize_
from seedbed.measure.sink import sink_report
from seedbed.model import Decoder, KVCache
from seedbed.model.attention import attend, document_mask
from seedbed.train.objective import chunked_cross_entropy


def decoder(scale: float | None = None, **model) -> Decoder:
    attention = {"n_heads": 4, "n_kv_heads": 2, "scale": scale}
    config = {"vocab_size": 50, "d_model": 32, "n_layers": 2, "max_seq_len": 32, "attention": attention, **model}
    made = Decoder(ModelConfig.model_validate(config))
    initialize_(made, "normal", std=0.3)
    return made


IDS = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(0))
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])


@pytest.mark.parametrize("tied", [False, True])
def test_every_reader_of_the_head_gets_the_multiplied_logits(tied):
    plain, scaled = decoder(tied=tied), decoder(tied=tied, output_multiplier=0.25)
    with torch.no_grad():
        logits = plain(IDS) / 4
        assert torch.equal(scaled(IDS), logits)
        assert torch.equal(scaled(IDS, hidden=True) @ scaled.head_weight.T, logits)
    loss = chunked_cross_entropy(scaled(IDS, hidden=True), scaled.head_weight, IDS)
    torch.testing.assert_close(loss, F.cross_entropy(logits.flatten(0, 1), IDS.flatten(), reduction="sum"))
    loss.backward()
    F.cross_entropy((plain(IDS) / 4).flatten(0, 1), IDS.flatten(), reduction="sum").backward()
    for one, other in zip(scaled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)


def by_hand(scale: float):
    """Attention with its scores written out: softmax(scale q k^T) of what the usual path got as queries."""

    def plain(q, k, v, visible):
        k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
        scores = q @ k.mT * scale
        if not isinstance(visible, torch.Tensor):
            start = k.shape[2] - q.shape[2]
            visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(start)
        return scores.masked_fill(~visible, -math.inf).softmax(-1) @ v

    return plain


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_scale_holds_on_every_path(scale):
    scaled, wanted = decoder(scale), decoder()
    for layer in wanted.layers:  # the same queries, and the whole scale in the scores
        layer.attn.attend = by_hand(scale)
    with torch.no_grad():
        logits = wanted(IDS)
        torch.testing.assert_close(scaled(IDS), logits, atol=2e-4, rtol=1e-4)
        assert (decoder()(IDS) - logits).abs().max() > 1e-2
        # packed documents: per slice, and by a mask
        alone = torch.cat([wanted(IDS[:1, :5]), wanted(IDS[:1, 5:])], dim=1)
        torch.testing.assert_close(scaled(IDS, DOCUMENTS)[:1], alone, atol=2e-4, rtol=1e-4)
        for layer in scaled.layers:
            layer.attn.attend = lambda q, k, v, visible: attend(q, k, v, document_mask(DOCUMENTS))
        torch.testing.assert_close(scaled(IDS, DOCUMENTS)[:1], alone, atol=2e-4, rtol=1e-4)
        # a cache, token by token
        cached = decoder(scale)
        cache = KVCache(cached.config, 2, 12)
        steps = [cached(IDS[:, [t]], cache=cache) for t in range(12)]
        torch.testing.assert_close(torch.cat(steps, dim=1), logits, atol=2e-4, rtol=1e-4)


def test_sinks_are_measured_at_the_layers_scale():
    """A scale of almost 0 attends evenly, and the weights that are computed again must explain the output."""
    report = sink_report(decoder(1e-6), IDS, DOCUMENTS)
    assert [score for layer in report.scores for score in layer] == pytest.approx([report.uniform] * 8, rel=1e-3)
    sharp = sink_report(decoder(3.0), IDS, DOCUMENTS)
    assert max(abs(score - sharp.uniform) for layer in sharp.scores for score in layer) > 0.05


def test_the_usual_scale_written_out_changes_no_bit():
    with torch.no_grad():
        assert torch.equal(decoder(8**-0.5, output_multiplier=1.0)(IDS, DOCUMENTS), decoder()(IDS, DOCUMENTS))
