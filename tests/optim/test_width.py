"""Rates over widths: µP's factors by group, the decay that goes with them, and why they are what they are."""

import pytest
import torch
from torch import nn

from seedbed.config import Config
from seedbed.facts.fact import ParameterFact
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers, rate_factor
from seedbed.optim.muon import Muon

MUP = ["init.law=mup", "init.base_width=16"]


def config(width: int, *overrides: str) -> Config:
    shape = [f"model.d_model={width}", f"model.attention.n_heads={width // 8}", f"model.ffn.d_ff={3 * width}"]
    return Config.load(None, ["model.vocab_size=40", "model.n_layers=1", "model.bias=true", *shape, *overrides])


def build(resolved: Config):
    model = Decoder(resolved.model)
    initialize_(model, resolved.init.law, **resolved.init.options)
    return model, build_optimizers(model, parameter_facts(model), resolved.optim)


def fact(role: str, d_in: int, d_out: int) -> ParameterFact:
    shape = (d_out, d_in) if role != "norm" else (d_out,)
    return ParameterFact("x", role, shape, d_in, d_out, writes_residual=role in ("attn.o", "mlp.down"))


@pytest.mark.parametrize(
    ("role", "d_in", "d_out"),
    [("attn.q", 64, 64), ("attn.k", 64, 16), ("attn.gate", 64, 64), ("mlp.up", 64, 192), ("mlp.down", 192, 64),
     ("attn.o", 48, 64), ("linear", 64, 5)],
)  # fmt: skip
def test_hidden_matrices_slow_down_with_the_stream_they_read_or_write(role, d_in, d_out):
    assert rate_factor(fact(role, d_in, d_out), 16, "adamw") == 1 / 4
    assert rate_factor(fact(role, d_in, d_out), 16, "muon") == 1 / 2
    assert rate_factor(fact(role, d_in, d_out), 64, "adamw") == 1
    assert rate_factor(fact(role, d_in, d_out), None, "adamw") == 1


@pytest.mark.parametrize("role", ["embed", "pos", "token", "patch", "head", "norm", "norm.bias", "bias"])
def test_the_rest_keeps_its_rate(role):
    assert rate_factor(fact(role, 64, 64), 16, "adamw") == 1


def test_a_router_is_a_hidden_matrix_of_adamw():
    assert rate_factor(fact("moe.router", 64, 8), 16, "adamw") == 1 / 4


@pytest.mark.parametrize(("name", "factor"), [("adamw", 1 / 4), ("muon", 1 / 2)])
def test_rates_and_decay_of_the_groups(name, factor):
    _, optimizers = build(config(64, *MUP, f"optim.name={name}", "optim.lr=0.02", "optim.weight_decay=0.3"))
    rows = {row["group"]: row for row in optimizers.rows()}
    assert list(rows) == ["block matrices", "embeddings", "head", "norms and biases"]
    assert {group: row["lr"] for group, row in rows.items()} == {
        "block matrices": pytest.approx(0.02 * factor), "embeddings": 0.02, "head": 0.02, "norms and biases": 0.02,
    }  # fmt: skip
    shares = [row["lr"] * row["weight_decay"] for row in rows.values()]
    assert shares == pytest.approx([0.02 * 0.3] * 3 + [0])
    assert f"{0.02 * factor:.3g}" in str(optimizers).splitlines()[1]
    assert optimizers.set_rate(0.5) == 0.01  # the rate itself: what is logged
    assert [row["lr"] for row in optimizers.rows()] == pytest.approx([0.01 * factor, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_decays_by_the_same_share_at_every_width(name):
    for width in (16, 64):
        model, optimizers = build(config(width, *MUP, f"optim.name={name}", "optim.lr=0.1", "optim.weight_decay=0.5"))
        for parameter in model.parameters():
            nn.init.ones_(parameter)
            parameter.grad = torch.zeros_like(parameter)
        optimizers.step()
        for parameter in model.parameters():
            torch.testing.assert_close(parameter.data, torch.full_like(parameter, 0.95 if parameter.ndim == 2 else 1.0))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_at_the_base_width_nothing_differs(name):
    """Equal bits after three steps with the base width and without: multiplier and factors are exactly 1."""
    ids = torch.randint(40, (2, 9), generator=torch.Generator().manual_seed(0))
    results = []
    for base_width in (16, None):
        resolved = config(16, *MUP, f"optim.name={name}", "optim.lr=0.01")
        assert resolved.model.output_multiplier == 1
        model = Decoder(resolved.model)
        initialize_(model, "mup", base_width=16)
        optim = resolved.optim.model_copy(update={"base_width": base_width})
        optimizers = build_optimizers(model, parameter_facts(model), optim)
        for _ in range(3):
            nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
            optimizers.step()
            optimizers.zero_grad()
        results.append(model.state_dict())
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())


def test_state_loads_whatever_the_groups():
    """Names carry the state: a run from before the rates had factors goes on."""
    _, plain = build(config(64, "optim.name=adamw"))
    _, scaled = build(config(64, *MUP, "optim.name=adamw"))
    saved = {name: torch.full_like(tensor, 0.5) for name, tensor in plain.state_dict().items()}
    own = scaled.state_dict()
    assert {name: tensor.shape for name, tensor in own.items()} == {name: one.shape for name, one in saved.items()}


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 1), (1, 3)], ids=["square", "up", "down"])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_an_update_moves_the_output_by_the_same_at_every_width(name, blocks, rows, columns):
    """One step from a gradient of a few tokens, as a batch makes it: RMS of (W' - W) x, x of RMS 1, for matrices
    d x d, 3d x d and d x 3d, and for three of them fused. With a factor of another power of the width it would move
    by 32^(1/2) = 5.7 times or more over these widths."""
    moved = []
    for width in (16, 128, 512):
        generator = torch.Generator().manual_seed(0)
        m, n = rows * width, columns * width
        x, slopes = torch.randn(8, n, generator=generator), torch.randn(8, blocks * m, generator=generator)
        weight = nn.Parameter(torch.zeros(blocks * m, n))
        weight.grad = slopes.T @ x / width  # tokens add up
        role = "mlp.down" if columns > rows else "mlp.up"
        lr = 0.01 * rate_factor(fact(role, n, m), 16, name)
        ranges = tuple((start, start + m) for start in range(0, blocks * m, m))
        if name == "muon":
            Muon([{"params": [weight], "rows": [ranges]}], lr=lr).step()
        else:
            torch.optim.AdamW([weight], lr=lr).step()
        moved.append((x @ weight.detach().T).square().mean().sqrt().item())
    assert max(moved) / min(moved) < 1.35, moved
