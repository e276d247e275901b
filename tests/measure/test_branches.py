"""Branches by themselves against the same numbers by hand."""

import pytest
import torch

from seedbed.config import ModelConfig
from seedbed.init import initialize_
from seedbed.measure.branches import branch_ratios, flow_ratios
from seedbed.model import Decoder

IDS = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(5))


def decoder(**options) -> Decoder:
    config = ModelConfig.model_validate({"vocab_size": 50, "d_model": 32, "n_layers": 3, **options})
    model = Decoder(config)
    initialize_(model, gamma=0.6)
    with torch.no_grad():
        for layer in model.layers:
            layer.attn_norm.weight.fill_(2.0)  # to tell the norms apart
    return model


def ratio(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    return (x.norm(dim=-1) / e.norm(dim=-1)).flatten().double()


def test_every_branch_reads_the_embedded_input():
    model = decoder(position="learned", ffn={"kind": "gelu"})
    attn, mlp = branch_ratios(model, "attn", IDS), branch_ratios(model, "mlp", IDS)
    assert attn.shape == mlp.shape == (3, IDS.numel())
    with torch.no_grad():
        e = h = model.embed(IDS) + model.pos(torch.arange(IDS.shape[1]))
        for i, layer in enumerate(model.layers):
            torch.testing.assert_close(
                attn[i], ratio(layer.attn(layer.attn_norm(e), None, None, None), e), rtol=1e-5, atol=0
            )
            torch.testing.assert_close(mlp[i], ratio(layer.mlp(layer.mlp_norm(e)), e), rtol=1e-5, atol=0)
            h = layer(h, None, None, None)
        torch.testing.assert_close(flow_ratios(model, IDS), ratio(h - e, e), rtol=1e-5, atol=0)


def test_attention_stays_in_its_document_and_padding_is_not_counted():
    model = decoder()
    doc_ids = torch.tensor([[0] * 10 + [1] * 14])
    alone = [branch_ratios(model, "attn", part) for part in (IDS[:1, :10], IDS[:1, 10:])]
    torch.testing.assert_close(branch_ratios(model, "attn", IDS[:1], doc_ids), torch.cat(alone, dim=1))
    doc_ids[0, 10:] = -1
    torch.testing.assert_close(branch_ratios(model, "attn", IDS[:1], doc_ids), alone[0])
    with pytest.raises(ValueError, match="zero tokens"):
        branch_ratios(model, "mlp", IDS[:1], torch.full((1, 24), -1))


def test_a_tiny_branch_is_not_zero():
    model = decoder()
    with torch.no_grad():
        model.layers[0].mlp.down.weight.mul_(1e-25)
        model.layers[1].mlp.down.weight.zero_()
    first, second, _ = branch_ratios(model, "mlp", IDS).mean(1).tolist()
    assert 0 < first < 1e-20
    assert second == 0
