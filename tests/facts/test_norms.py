"""Gains are measured: a factor starts at 1, a difference from 1 at 0."""

import pytest
import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.norms import norm_role
from seedbed.facts.table import parameter_facts


class PlainNorm(nn.Module):
    def __init__(self, width: int = 6):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), torch.nan))

    def normed(self, x: Tensor) -> Tensor:
        return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * self.normed(x)


class OffsetNorm(PlainNorm):
    def forward(self, x: Tensor) -> Tensor:
        return (1 + self.weight) * self.normed(x)


class GatedNorm(PlainNorm):
    def forward(self, x: Tensor, gate: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.weight * self.normed(x) * nn.functional.silu(gate)


class GatedOffsetNorm(PlainNorm):
    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return (1 + self.weight) * self.normed(x) * nn.functional.silu(gate)


class OffsetLayerNorm(nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.layer_norm(input, self.normalized_shape, self.weight + 1, self.bias, self.eps)


class ChannelsFirstNorm(PlainNorm):
    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        return (self.weight * self.normed(x)).permute(0, 3, 1, 2)


class TokensNorm(OffsetNorm):
    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return super().forward(x).view(batch, length, width)


class BrokenNorm(PlainNorm):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("needs a GPU")


class StrangeNorm(PlainNorm):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight.exp() * self.normed(x)


ROLES = {
    PlainNorm: "norm", OffsetNorm: "norm.offset", GatedNorm: "norm", GatedOffsetNorm: "norm.offset",
    ChannelsFirstNorm: "norm", TokensNorm: "norm.offset",
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("norm", ROLES)
def test_the_gain_is_measured(norm, device):
    with torch.device(device):
        module = norm()
    calls = []
    module.register_forward_pre_hook(lambda *_: calls.append(1))
    before = module.weight
    assert [fact.role for fact in parameter_facts(module)] == [ROLES[norm]]
    assert module.weight is before  # and nothing of the module was run or changed
    assert device == "meta" or module.weight.isnan().all()
    assert not calls


def test_a_subclass_of_torchs_own_norm_is_measured_too():
    roles = [fact.role for fact in parameter_facts(OffsetLayerNorm(6))]
    assert roles == ["norm.offset", "norm.bias"]


@pytest.mark.parametrize("norm", [BrokenNorm, StrangeNorm])
def test_a_norm_that_cannot_be_measured_is_refused_by_name(norm):
    with pytest.raises(InputError, match="no rule covers 0.weight"):
        parameter_facts(nn.Sequential(norm()))
    (fact,) = parameter_facts(nn.Sequential(norm()), roles={"weight": "norm"})
    assert fact.role == "norm"


def test_torchs_own_norms():
    norms = [nn.LayerNorm(4), nn.RMSNorm(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)]
    for norm in norms:
        roles = {name: norm_role(norm, name) for name, _ in norm.named_parameters()}
        assert roles == {name: {"weight": "norm", "bias": "norm.bias"}[name] for name in roles}


def test_what_is_no_gain_of_a_norm_is_looked_up_as_of_any_module():
    class NormedLinear(nn.Linear):
        pass

    class PoolNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.cls_token = nn.Parameter(torch.zeros(4))

    assert [fact.role for fact in parameter_facts(NormedLinear(4, 4))] == ["linear", "bias"]
    assert [fact.role for fact in parameter_facts(PoolNorm())] == ["token"]
