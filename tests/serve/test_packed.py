"""Packed matrices give the usual products, where they serve, and leave the model as it was."""

import pytest
import torch
from torch.nn import functional as F

from seedbed.serve.packed import ROWS, packed, packs, product


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 8, ROWS, ROWS + 1])
def test_products_are_the_usual_ones(rows, bias):
    generator = torch.Generator().manual_seed(0)
    weight, shift = torch.randn(70, 33, generator=generator), torch.randn(70, generator=generator) if bias else None
    x = torch.randn(rows, 1, 33, generator=generator)
    torch.testing.assert_close(product(weight, shift)(x), F.linear(x, weight, shift), atol=1e-5, rtol=1e-5)


def test_the_model_is_packed_inside_alone(make_model):
    module = make_model("model.bias=true").module
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = module(ids)
        with pytest.raises(KeyError), packed(module, 300, 16) as head:
            assert "forward" in vars(module.layers[0].attn.qkv)
            torch.testing.assert_close(module(ids), before, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(head(module(ids, hidden=True)), before[..., :300], atol=1e-4, rtol=1e-4)
            raise KeyError
        assert not any("forward" in vars(part) for part in module.modules())
        assert torch.equal(module(ids), before)


def test_packing_must_serve(make_model, monkeypatch):
    module = make_model().module
    assert packs(module, 16)
    assert not packs(module, 15)
    assert not packs(make_model().module.bfloat16(), 16)
    monkeypatch.setattr("seedbed.serve.packed.BYTES", 1000)
    assert not packs(module, 16)
    with packed(module, 300, 16) as head:
        assert not any("forward" in vars(part) for part in module.modules())
        assert torch.equal(head(torch.ones(1, 32)), F.linear(torch.ones(1, 32), module.head_weight[:300]))
