import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seedbed.config.model import ModelConfig
from seedbed.measure import precision
from seedbed.measure.precision import LOST_CHUNK, bf16_autocast, bf16_errors, lost_share
from seedbed.model.attention import attend, document_mask
from seedbed.model.decoder import Decoder

IDS = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(5))
DOCS = torch.tensor([[0] * 9 + [1] * 15, [2] * 24])
VARIANTS = {
    "plain": {},
    "gqa": {"attention": {"n_heads": 4, "n_kv_heads": 2}, "tied": True},
    "gated, qk-norm": {"attention": {"gate": "elementwise", "qk_norm": "head"}},
    "headwise": {"attention": {"gate": "headwise"}},
    "gpt2": {"norm": "layernorm", "position": "learned", "bias": True, "ffn": {"kind": "gelu"}},
}


def decoder(attend=attend, **options) -> Decoder:
    model = Decoder(ModelConfig.model_validate({"vocab_size": 50, "d_model": 32, "n_layers": 3, **options}), attend)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.1)
    return model


def masked(q, k, v, visible):
    """Attention by a dense mask, which the decoder takes elsewhere than on a CPU."""
    return attend(q, k, v, document_mask(DOCS))


class BothWays(precision._Fp32Products):
    """Goes on with what the bf16 kernel gives, and keeps each product as both ways give it."""

    def __init__(self):
        super().__init__()
        self.products: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in (*precision._PRODUCTS, precision._ATTENTION):
            ours = super().__torch_dispatch__(func, types, args, kwargs)
            pair = (ours[0], out[0]) if isinstance(out, tuple) else (ours, out)
            self.products.append(pair)
        return out


@pytest.mark.parametrize("options", [*VARIANTS.values(), {"attend": masked}], ids=[*VARIANTS, "masked"])
@pytest.mark.parametrize("doc_ids", [None, DOCS], ids=["one document", "packed"])
def test_every_product_is_that_of_the_bf16_kernel(options, doc_ids):
    """To the order of summation: at most one unit in the last place of the largest entry, and that in few entries."""
    model = decoder(**options)
    with torch.no_grad(), BothWays() as both, torch.autocast("cpu", torch.bfloat16):
        model(IDS, doc_ids)
    assert len(both.products) >= 3 * 5 + 1  # qkv, attention, o, two or three of the network, and the head
    for ours, real in both.products:
        assert ours.dtype == real.dtype == torch.bfloat16
        ulp = torch.finfo(torch.bfloat16).eps * float(real.abs().max())
        assert float((ours.float() - real.float()).abs().max()) <= ulp
    differing = torch.cat([(ours != real).flatten() for ours, real in both.products])
    assert float(differing.float().mean()) < 0.005


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_types_are_those_of_autocast(options):
    def types(context) -> list[tuple[str, torch.dtype]]:
        seen, model = [], decoder(**options)
        for name, module in model.named_modules():
            module.register_forward_hook(lambda _, args, out, name=name: seen.append((name, args[0].dtype, out.dtype)))
        with torch.no_grad(), context:
            model(IDS, DOCS)
        return seen

    ours = types(bf16_autocast("cpu"))
    assert ours == types(torch.autocast("cpu", torch.bfloat16))
    assert ("layers.0.attn.o", torch.bfloat16, torch.bfloat16) in ours
    assert ("layers.0.mlp.down", torch.bfloat16, torch.bfloat16) in ours


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_errors_are_those_of_autocast(options, monkeypatch):
    model = decoder(**options)
    ours = bf16_errors(model, IDS, DOCS)
    monkeypatch.setattr(precision, "bf16_autocast", lambda device: torch.autocast(device, torch.bfloat16))
    real = bf16_errors(model, IDS, DOCS)
    assert [row.layer for row in ours] == [0, 1, 2, 3]
    assert [row.error for row in ours] == pytest.approx([row.error for row in real], rel=0.06)
    assert all(1e-3 < row.error < 3e-2 for row in ours)


def test_no_product_runs_in_bf16_on_a_cpu():
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.name() in {"aten::mm", "aten::addmm", "aten::bmm", precision._ATTENTION.name()}:
                seen.append((func.name(), args[0].dtype))
            return func(*args, **(kwargs or {}))

    seen = []
    with torch.no_grad(), Seen(), bf16_autocast("cpu"):
        for options in VARIANTS.values():
            decoder(**options)(IDS, DOCS)
        assert (torch.ones(2, 3, 4) @ torch.ones(2, 4, 3)).dtype == torch.bfloat16
    assert set(seen) == {(f"aten::{name}", torch.float32) for name in ("mm", "addmm", "bmm")}


def test_where_autocast_is_off_fp32_stays():
    x, y = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)).unbind()
    with torch.no_grad(), bf16_autocast("cpu"), torch.autocast("cpu", enabled=False):
        assert torch.equal(x[0] @ y[0], torch.mm(x[0], y[0]))
        assert (x[0] @ y[0]).dtype == F.scaled_dot_product_attention(x[None], y[None], y[None]).dtype == torch.float32


def test_error_is_a_mean_over_tokens_of_relative_errors():
    model = decoder()
    with torch.no_grad():
        model.embed.weight[:25] *= 100  # one mean of norms would forget the other tokens

    def states(context) -> list[torch.Tensor]:
        seen = []
        hooks = [layer.register_forward_hook(lambda _, args, out: seen.append(out)) for layer in model.layers]
        with torch.no_grad(), context:
            seen.append(model(IDS, None))
        for hook in hooks:
            hook.remove()
        return seen

    exact, rounded = states(torch.no_grad()), states(bf16_autocast("cpu"))
    expected = [float(((a - b).norm(dim=-1) / b.norm(dim=-1)).mean()) for a, b in zip(rounded, exact, strict=True)]
    assert [row.error for row in bf16_errors(model, IDS, None)] == pytest.approx(expected, rel=1e-5)
    assert len({round(error, 5) for error in expected}) == 4


def test_what_is_exact_in_bf16_has_no_error():
    model = decoder()
    with torch.no_grad():
        for layer in model.layers:
            layer.attn.o.weight.zero_()
            layer.mlp.down.weight.zero_()
    *stream, logits = bf16_errors(model, IDS, None)
    assert [row.error for row in stream] == [0, 0, 0]
    assert logits.error > 1e-3
    with torch.no_grad():
        model.head.weight.zero_()
    assert bf16_errors(model, IDS, None)[-1].error == 0


def test_not_finite_is_reported():
    model = decoder()
    with torch.no_grad():
        model.layers[1].mlp.down.weight[0, 0] = math.nan
    errors = [row.error for row in bf16_errors(model, IDS, None)]
    assert [math.isnan(error) for error in errors] == [False, True, True, True]


def test_padding_is_not_counted():
    model = decoder()
    ids = torch.cat([torch.zeros(1, 3, dtype=torch.int64), IDS[:1]], 1)
    padded = bf16_errors(model, ids, torch.tensor([[-1] * 3 + [0] * 24]))
    plain = bf16_errors(model, IDS[:1], None)
    assert [row.error for row in padded] == pytest.approx([row.error for row in plain], rel=0.02)
    with pytest.raises(ValueError, match="zero tokens"):
        bf16_errors(model, ids, torch.full_like(ids, -1))


def test_some_tokens_stand_for_all_logits(monkeypatch):
    model, every = decoder(), bf16_errors(decoder(), IDS, None)
    monkeypatch.setattr(precision, "LOGIT_TOKENS", 5)
    some = bf16_errors(model, IDS, None)
    assert some[:-1] == every[:-1]
    assert some[-1] != every[-1]
    assert some[-1].error == pytest.approx(every[-1].error, rel=0.3)


@pytest.mark.parametrize("ids", [IDS, torch.full((1, 4), 999)])
def test_model_is_left_as_it_was(ids):
    model = decoder()
    model.layers[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hook = model.layers[0].register_forward_hook(
        lambda module, _, out: runs.append((module.training, out.requires_grad))
    )
    runs = []
    try:
        bf16_errors(model, ids, None)
    except IndexError:
        assert int(ids.max()) == 999
    assert set(runs) <= {(False, False)}
    hook.remove()
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()) == 0
    assert model.training
    assert not model.layers[1].training
    assert not torch.is_autocast_enabled("cpu")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_bf16_has_seven_bits():
    assert torch.finfo(torch.bfloat16).eps == 2**-7 == pytest.approx(0.0078, abs=5e-5)


@pytest.mark.parametrize(
    ("weight", "update", "lost"),
    [
        (1.0, 0.0038, True),  # below half of 0.0078
        (1.0, 0.0040, False),
        (1.0, -0.0019, True),  # neighbours below 1 are half as far away
        (1.0, -0.0020, False),
        (1.001, 0.0038, True),  # stored as 1
        (1.003, 0.0015, True),  # stored as 1: the fp32 sum alone would round up
        (0.0, 1e-30, False),
    ],
)
def test_an_update_is_lost_below_half_a_unit(weight, update, lost):
    assert lost_share(torch.tensor([weight]), torch.tensor([update])) == lost


def test_lost_share_counts_entries_that_have_an_update():
    weight, update = torch.ones(2, 3), torch.tensor([[0.0, 1e-3, 1e-3], [0.0, 1e-3, 0.1]])
    assert lost_share(weight, update) == 0.75
    assert math.isnan(lost_share(weight, torch.zeros(2, 3)))


def test_lost_share_in_another_type():
    assert lost_share(torch.ones(2), torch.tensor([1e-8, 1e-6]), torch.float32) == 0.5
    assert lost_share(torch.ones(2), torch.tensor([3e-4, 6e-4]), torch.float16) == 0.5
    assert lost_share(torch.tensor([1.0007]), torch.tensor([-3e-4]), torch.float16) == 1  # stored as 1.00098


def test_lost_share_reads_every_chunk():
    weight = torch.ones(LOST_CHUNK + 300)
    update = torch.full_like(weight, 0.1)
    update[-100:] = 1e-4
    assert lost_share(weight, update) == 100 / len(weight)
    assert lost_share(weight.view(-1, 4).mT, update.view(-1, 4).mT) == 100 / len(weight)


def test_lost_share_grows_as_the_rate_falls():
    generator = torch.Generator().manual_seed(0)
    weight, direction = (torch.randn(100_000, generator=generator) for _ in range(2))
    shares = [lost_share(weight, rate * direction) for rate in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)]
    assert all(low < high for low, high in pairwise(shares))
    assert shares[0] < 0.05
    assert shares[-1] > 0.99


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_lost_share_of_what_is_not_finite(bad):
    ones = torch.ones(3)
    poisoned = torch.tensor([1.0, bad, 1.0])
    assert math.isnan(lost_share(poisoned, ones))
    assert math.isnan(lost_share(ones, poisoned))


def test_a_mismatch_of_shapes_is_an_error():
    with pytest.raises((ValueError, RuntimeError)):
        lost_share(nn.Parameter(torch.ones(4, 3)), torch.ones(4, 2))


def test_attention_at_another_scale():
    q, k, v = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(0)).bfloat16().unbind()
    with torch.no_grad():
        real = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=3.0)
        with bf16_autocast("cpu"):
            ours = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=3.0)
    assert float((ours.float() - real.float()).abs().max()) <= torch.finfo(torch.bfloat16).eps * float(real.abs().max())
