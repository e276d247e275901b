"""Which list of a model is its stack of blocks: stages within it are counted through, parts of a block are not."""

import pytest
from torch import nn

from seedbed.facts.table import parameter_facts

D = 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)


class Residual(nn.Module):
    def __init__(self, fn: nn.Module):
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(D), fn


class Block(nn.Module):
    def __init__(self, drop: bool = False):
        super().__init__()
        self.attn, self.mlp = Attention(), Mlp()
        self.drop_path = nn.Dropout() if drop else nn.Identity()


class Stage(nn.Module):
    def __init__(self, depth: int):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(drop=i > 0) for i in range(depth)))
        self.downsample = nn.Linear(D, D)


def holding(**parts: nn.Module) -> nn.Module:
    module = nn.Module()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def places(model: nn.Module) -> dict[str, tuple[int | None, int]]:
    return {fact.name: (fact.layer, fact.n_layers) for fact in parameter_facts(model)}


def test_stages_at_the_top_are_counted_through():  # as in timm's Swin
    model = holding(patch_embed=nn.Conv2d(3, D, 2, 2), layers=nn.Sequential(Stage(2), Stage(6)))
    told = places(model)
    assert [told[f"layers.0.blocks.{i}.attn.qkv.weight"] for i in range(2)] == [(0, 8), (1, 8)]
    assert [told[f"layers.1.blocks.{i}.mlp.fc2.bias"] for i in range(6)] == [(i, 8) for i in range(2, 8)]
    assert told["layers.1.downsample.weight"] == told["patch_embed.weight"] == (None, 8)


@pytest.mark.parametrize(
    "parts",
    [
        lambda: [Attention(), Mlp()],
        lambda: [Residual(Attention()), Residual(Mlp())],
        lambda: [nn.Linear(D, D), nn.Linear(D, D)],
        lambda: [nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)],
    ],
)
def test_a_list_of_the_parts_of_a_block_is_no_stack(parts):
    block = [holding(norm=nn.LayerNorm(D), layers=nn.ModuleList(parts())) for _ in range(3)]
    for name, place in places(holding(blocks=nn.ModuleList(block))).items():
        assert place == (int(name.split(".")[1]), 3), name
