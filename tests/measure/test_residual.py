import pytest
import torch
from torch import nn

from seedbed.config.model import ModelConfig
from seedbed.measure.residual import masking_ratio, residual_report
from seedbed.model.decoder import Decoder

IDS = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(5))


def decoder(gamma: float = 0.5, d_model: int = 32, **options) -> Decoder:
    config = ModelConfig.model_validate({"vocab_size": 50, "d_model": d_model, "n_layers": 3, **options})
    model = Decoder(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -gamma)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
    return model


@pytest.mark.parametrize(("gamma", "percent"), [(0.6, 9), (0.755, 50), (1.0, 98)])
def test_masking_ratio_at_the_width_of_s0(gamma, percent):
    second_moment = torch.tensor(2048.0 ** (-2 * gamma), dtype=torch.float64)
    assert round(100 * float(masking_ratio(second_moment, 1e-5))) == percent
    assert float(masking_ratio(torch.tensor(2048.0**-2), 1e-12)) < 1e-5


@pytest.mark.parametrize(("gamma", "low", "high"), [(1.0, 0.975, 0.978), (0.5, 0.019, 0.022)])
def test_first_norm_sees_the_embedding(gamma, low, high):
    """A real decoder of width 2048: S0's 98 % and 2 % at its first norm."""
    options = {"attention": {"n_heads": 16, "head_dim": 2}, "ffn": {"d_ff": 8}}
    report = residual_report(decoder(gamma, 2048, n_layers=1, norm_eps=1e-5, **options), IDS)
    first = report.norms[0]
    assert first.name == "layers.0.attn_norm"
    assert first.second_moment == pytest.approx(2048 ** (-2 * gamma), rel=0.02)
    assert low < first.masking < high
    assert report.embed_rms == pytest.approx(2048**-gamma, rel=0.01)


def test_masking_is_a_mean_of_per_token_ratios():
    model = decoder(norm_eps=0.5)
    with torch.no_grad():
        model.embed.weight[0], model.embed.weight[1] = 1.0, 3.0
    first = residual_report(model, torch.tensor([[0, 1]])).norms[0]
    assert first.second_moment == pytest.approx(5)
    assert first.masking == pytest.approx((0.5 / 1.5 + 0.5 / 9.5) / 2)


def test_layernorm_masks_by_variance():
    model = decoder(norm="layernorm", norm_eps=1e-5)
    with torch.no_grad():
        model.embed.weight[0, ::2], model.embed.weight[0, 1::2] = 6.0, 4.0
    assert residual_report(model, torch.tensor([[0, 0]])).norms[0].second_moment == pytest.approx(1, rel=1e-6)


def test_flow_equals_states_computed_by_hand():
    model = decoder(position="learned", ffn={"kind": "gelu"})
    report = residual_report(model, IDS)
    with torch.no_grad():
        e = h = model.embed(IDS) + model.pos(torch.arange(IDS.shape[1]))
        for index, layer in enumerate(model.layers):
            attn = layer.attn(layer.attn_norm(h), None, None, None)
            mlp = layer.mlp(layer.mlp_norm(h + attn))
            got = report.layers[index]
            assert got.layer == index
            assert got.attn == pytest.approx(float((attn.norm(dim=-1) / h.norm(dim=-1)).mean()), rel=1e-5)
            assert got.mlp == pytest.approx(float((mlp.norm(dim=-1) / (h + attn).norm(dim=-1)).mean()), rel=1e-5)
            h = h + attn + mlp
            assert got.flow == pytest.approx(float(((h - e).norm(dim=-1) / e.norm(dim=-1)).mean()), rel=1e-5)
    assert report.flow == report.layers[-1].flow
    assert report.tokens == IDS.numel()


def test_branches_that_write_nothing_have_no_flow():
    model = decoder()
    with torch.no_grad():
        for layer in model.layers:
            layer.attn.o.weight.zero_()
            layer.mlp.down.weight.zero_()
    report = residual_report(model, IDS)
    assert report.flow == 0
    assert [(layer.attn, layer.mlp) for layer in report.layers] == [(0, 0)] * 3


def test_qk_norms_are_apart():
    report = residual_report(decoder(attention={"qk_norm": "head"}), IDS)
    assert [norm.name for norm in report.norms] == [
        *(f"layers.{i}.{part}" for i in range(3) for part in ("attn_norm", "mlp_norm")), "norm",
    ]  # fmt: skip
    assert [norm.name for norm in report.qk_norms] == [
        f"layers.{i}.attn.{part}_norm" for i in range(3) for part in "qk"
    ]


@pytest.mark.parametrize("written", [1.0, 0.0])
def test_norms_behind_branches_mask_what_the_branches_give(written):
    model = decoder(norm_placement="post", attention={"qk_norm": "whole"}, norm_eps=1e-5)
    with torch.no_grad():
        for layer in model.layers:
            layer.mlp.down.weight *= written
        x, rotation, visible = model.embedded(IDS)
        attn = model.layers[0].attn(x, rotation, visible, None)
        added = model.layers[0].attn_norm(attn)
    report = residual_report(model, IDS)
    assert [norm.name for norm in report.norms] == [
        *(f"layers.{i}.{part}" for i in range(3) for part in ("attn_norm", "mlp_norm")), "norm",
    ]  # fmt: skip
    assert len(report.qk_norms) == 6
    assert report.norms[0].second_moment == pytest.approx(float(attn.square().mean()), rel=1e-5)
    assert report.layers[0].attn == pytest.approx(float((added.norm(dim=-1) / x.norm(dim=-1)).mean()), rel=1e-5)
    if written == 0:
        assert (report.layers[0].mlp, report.norms[1].masking) == (0, pytest.approx(1))
    else:
        assert report.norms[1].masking < 1e-2


def test_padding_is_not_counted():
    model = decoder()
    ids = torch.cat([torch.zeros(1, 3, dtype=torch.int64), IDS[:1]], 1)
    padded = residual_report(model, ids, torch.tensor([[-1] * 3 + [0] * 24]))
    plain = residual_report(model, IDS[:1])
    assert padded.tokens == 24
    assert padded.flow == pytest.approx(plain.flow, rel=1e-4)
    assert padded.norms[-1].second_moment == pytest.approx(plain.norms[-1].second_moment, rel=1e-4)
    with pytest.raises(ValueError, match="zero tokens"):
        residual_report(model, ids, torch.full_like(ids, -1))


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("ids", [IDS, torch.full((1, 4), 999)])
def test_model_is_left_as_it_was(ids):
    model = decoder()
    model.layers[1].eval()
    try:
        residual_report(model, ids)
    except IndexError:
        assert int(ids.max()) == 999
    assert hooks(model) == 0
    assert model.training
    assert model.layers[0].training
    assert not model.layers[1].training
    assert all(parameter.grad is None for parameter in model.parameters())
