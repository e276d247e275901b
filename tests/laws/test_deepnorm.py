"""DeepNorm where it belongs: a small post-norm stack whose stream is multiplied by alpha."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_
from seedbed.model import Decoder

WIDTH = 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D]
        q, k, v = (project(x)[:, None] for project in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v)[:, 0])


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.relu(self.up_proj(x)))


class Block(nn.Module):
    placement = "post"

    def __init__(self, alpha: float):
        super().__init__()
        self.alpha, self.self_attn, self.mlp = alpha, Attention(), Mlp()
        self.attn_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn_norm(self.alpha * x + self.self_attn(x))
        return self.mlp_norm(self.alpha * x + self.mlp(x))


class PostNorm(nn.Module):
    def __init__(self, depth: int, alpha: float):
        super().__init__()
        self.layers = nn.Sequential(*(Block(alpha) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def change_after_a_step(law: str, depth: int, alpha: float) -> float:
    """Root mean square by which one gradient step moves the output, mean over seeds."""
    changes = []
    for seed in range(3):
        model = PostNorm(depth, alpha)
        initialize_(model, law, seed=seed, **({"post_norm": True} if law == "deepnorm" else {}))
        x = torch.randn(4, 16, WIDTH, generator=torch.Generator().manual_seed(seed))
        target = torch.randn(x.shape, generator=torch.Generator().manual_seed(100 + seed))
        before = model(x)
        F.mse_loss(before, target).backward()
        with torch.no_grad():
            for parameter in (p for p in model.parameters() if p.ndim == 2):  # the theory is about matrices
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
            changes.append(float((model(x) - before).square().mean().sqrt()))
    return sum(changes) / len(changes)


def test_gains_of_a_post_norm_stack():
    depth = 6
    model = PostNorm(depth, (2 * depth) ** 0.25)
    report = initialize_(model, "deepnorm", post_norm=True)
    beta = (8 * depth) ** -0.25
    rows = {row.name: row for row in report.rows}
    for name, gain, sides in (
        ("self_attn.q_proj", 1, (WIDTH, WIDTH)),
        ("self_attn.v_proj", beta, (WIDTH, WIDTH)),
        ("self_attn.o_proj", beta, (WIDTH, WIDTH)),
        ("mlp.up_proj", beta, (WIDTH, 4 * WIDTH)),
        ("mlp.down_proj", beta, (4 * WIDTH, WIDTH)),
    ):
        row = rows[f"layers.3.{name}.weight"]
        target = gain * math.sqrt(2 / sum(sides))
        assert row.target_std == pytest.approx(target)
        assert row.std == pytest.approx(target, rel=4 / math.sqrt(2 * sides[0] * sides[1])), name


def test_a_step_moves_a_deep_stack_as_much_as_a_shallow_one():
    """What DeepNorm is for: the output changes alike at every depth. With plain Xavier and no alpha it does not."""
    depths = 4, 32
    shallow, deep = (change_after_a_step("deepnorm", depth, (2 * depth) ** 0.25) for depth in depths)
    assert deep / shallow == pytest.approx(1, abs=0.1)
    shallow, deep = (change_after_a_step("xavier", depth, 1.0) for depth in depths)
    assert deep / shallow > 2


def test_a_pre_norm_model_is_refused_and_left_alone():
    model = Decoder(Config.load(None, ["model.vocab_size=64", "model.d_model=32"]).model)
    assert {fact.placement for fact in parameter_facts(model) if fact.layer is not None} == {"pre"}
    with pytest.raises(InputError, match=r"layers\.0\.attn\..*this one is pre-norm"):
        initialize_(model, "deepnorm", post_norm=True)
    assert all(torch.isnan(parameter).all() for parameter in model.parameters())
