import math

import pytest
import torch
from torch.nn import functional as F

from seedbed.config.model import ModelConfig
from seedbed.measure.budget import BudgetRow, measure_budget, predicted_budget
from seedbed.model.attention import segments
from seedbed.model.decoder import Decoder
from seedbed.model.norm import gelu
from seedbed.model.rope import rotations

IDS = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(5))
DOCS = torch.tensor([[0] * 9 + [1] * 15, [2] * 24])
ROLES = ("attn.q", "attn.k", "attn.v", "attn.gate", "attn.o", "mlp.gate", "mlp.up", "mlp.down")
VARIANTS = {
    "plain": {},
    "gqa": {"attention": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 4}},
    "elementwise gate": {"attention": {"gate": "elementwise", "qk_norm": "head"}},
    "headwise gate": {"attention": {"gate": "headwise"}},
    "gpt2": {"norm": "layernorm", "position": "learned", "bias": True, "ffn": {"kind": "gelu"}},
}


def configured(**options) -> ModelConfig:
    return ModelConfig.model_validate({"vocab_size": 50, "d_model": 32, "n_layers": 3, **options})


def decoder(std: float = 0.1, **options) -> Decoder:
    model = Decoder(configured(**options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
    return model


def stds(config: ModelConfig, std: float, **of_role: float) -> dict[tuple[int, str], float]:
    told = {role.replace("_", "."): value for role, value in of_role.items()}
    return {(layer, role): told.get(role, std) for layer in range(config.n_layers) for role in ROLES}


def predicted(config: ModelConfig, std: float, **of_role: float) -> dict[str, float]:
    rows = predicted_budget(config, stds(config, std, **of_role))
    assert all(row.measured is None and row.predicted is not None for row in rows)
    return {row.quantity: row.predicted for row in rows}


def measured(model: Decoder, ids: torch.Tensor, doc_ids: torch.Tensor | None = None) -> dict[str, float]:
    rows = measure_budget(model, ids, doc_ids, predicted_budget(model.config, stds(model.config, 0.1)))
    return {row.quantity: row.measured for row in rows}


S1 = configured(
    vocab_size=100_000, d_model=1536, n_layers=24, attention={"n_heads": 24, "n_kv_heads": 4}, ffn={"d_ff": 6912}
)


@pytest.mark.parametrize(("divisor", "after"), [(1, 17.5), (48, 1.34)], ids=["plain", "residual scaling"])
def test_the_table_of_s1(divisor, after):
    """S1 rounds on the way: it has 0.378 for 0.6144² = 0.3775, and so 0.689 for their sum, 0.6885."""
    writing = 0.02 / math.sqrt(divisor)
    budget = predicted(S1, 0.02, attn_o=writing, mlp_down=writing)
    for quantity in ("q", "k", "v", "gate", "up"):
        assert budget[quantity] == pytest.approx(0.6144, rel=1e-12)
    assert budget["attention out"] == pytest.approx(0.6144**2 / divisor, rel=1e-12)
    assert budget["attention out"] == pytest.approx(0.378 / divisor, rel=1.5e-3)
    assert round(budget["silu(gate)"], 4) == 0.1831
    assert round(budget["gate·up"], 4) == 0.1125
    assert round(budget["down"] * divisor, 3) == 0.311
    assert round(budget["per block"] * divisor, 3) == 0.689
    assert budget["per block"] == pytest.approx({1: 0.689, 48: 0.01435}[divisor], rel=1e-3)
    assert round(budget["after L blocks"], 1 if divisor == 1 else 2) == after
    assert list(budget) == [
        "q", "k", "v", "attention out", "gate", "up", "silu(gate)", "gate·up", "down", "per block", "after L blocks",
    ]  # fmt: skip


def test_what_residual_scaling_saves_in_s1():
    writing = 0.02 / math.sqrt(48)
    plain, scaled = predicted(S1, 0.02), predicted(S1, 0.02, attn_o=writing, mlp_down=writing)
    assert round(plain["after L blocks"] / scaled["after L blocks"], 1) == 13.0
    assert plain["per block"] / scaled["per block"] == pytest.approx(2 * 24)


def test_rows_are_means_over_layers():
    config = configured(n_layers=2, ffn={"d_ff": 40})
    std = {**stds(config, 0.1), (0, "attn.q"): 0.3, (1, "attn.o"): 0.4, (1, "mlp.down"): 0.0}
    budget = {row.quantity: row.predicted for row in predicted_budget(config, std)}
    v = 32 * 0.01
    assert budget["q"] == pytest.approx((32 * 0.09 + v) / 2)
    assert budget["v"] == pytest.approx(v)
    assert budget["attention out"] == pytest.approx(32 * v * (0.01 + 0.16) / 2)
    assert budget["down"] == pytest.approx(40 * 0.01 * budget["gate·up"] / 2)
    assert budget["after L blocks"] == pytest.approx(1 + 2 * budget["per block"])


def test_product_of_gate_and_up():
    budget = predicted(configured(), 0.1, mlp_gate=0.2)
    assert budget["gate"] == pytest.approx(4 * budget["up"])
    assert budget["gate·up"] == pytest.approx(budget["silu(gate)"] * 32 * 0.01)


def test_heads_wider_than_the_model():
    config = configured(attention={"n_heads": 4, "n_kv_heads": 2, "head_dim": 64})
    assert predicted(config, 0.1)["attention out"] == pytest.approx(256 * 0.01 * 32 * 0.01)


@pytest.mark.parametrize("std", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize(("kind", "function"), [("swiglu", F.silu), ("gelu", gelu)])
def test_activation_is_the_variance_of_normal_draws(kind, function, std):
    config = configured(ffn={"kind": kind, "d_ff": 64})
    draws = torch.randn(2_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = float(function(draws * 32**0.5 * std).var())
    budget = predicted(config, std)
    hidden = budget["silu(gate)" if kind == "swiglu" else "gelu(up)"]
    assert hidden == pytest.approx(expected, rel=4e-3)
    hidden = budget["gate·up"] if kind == "swiglu" else hidden
    assert budget["down"] == pytest.approx(64 * std**2 * hidden)
    assert ("gate" in budget) == (kind == "swiglu")


@pytest.mark.parametrize("gate", ["elementwise", "headwise"])
@pytest.mark.parametrize(("std", "factor"), [(1e-4, 0.25), (1e4, 0.5), (32**-0.5, 0.2934)])
def test_gate_on_attention_passes_the_second_moment_of_its_sigmoid(gate, std, factor):
    gated = predicted(configured(attention={"gate": gate}), 0.1, attn_gate=std)
    assert gated["attention out"] == pytest.approx(factor * predicted(configured(), 0.1)["attention out"], rel=1e-3)


def test_matrices_of_zeros_pass_nothing():
    budget = predicted(configured(), 0.1, mlp_gate=0.0, attn_v=0.0)
    assert budget["silu(gate)"] == budget["gate·up"] == budget["down"] == budget["attention out"] == 0
    assert budget["after L blocks"] == 1


def test_a_missing_std_is_named():
    with pytest.raises(KeyError, match=r"\(0, 'mlp.up'\)"):
        predicted_budget(configured(), {key: s for key, s in stds(configured(), 0.1).items() if key[1] != "mlp.up"})


def test_the_prediction_holds_where_its_assumptions_do():
    """Documents of one token, so that attention averages nothing, and a wide model; a second moment for SiLU."""
    config = {"d_model": 384, "n_layers": 2, "attention": {"n_heads": 4}, "ffn": {"d_ff": 768}}
    model = decoder(0.04, **config)  # 384 · 0.04² = S1's 0.6144
    lone = torch.arange(50)[None]
    seen, said = measured(model, lone, lone), predicted(model.config, 0.04)
    for quantity in ("q", "k", "v", "gate", "up", "attention out"):
        assert seen[quantity] == pytest.approx(said[quantity], rel=0.05)
    assert said["silu(gate)"] / said["gate"] == 0.298
    assert seen["silu(gate)"] / seen["gate"] == pytest.approx(0.3277, rel=0.01)
    assert seen["down"] / said["down"] == pytest.approx(0.3277 / 0.298, rel=0.1)
    # the stream starts at 0.04², not at the variance 1 of the prediction
    assert seen["per block"] == pytest.approx((seen["attention out"] + seen["down"]) / 0.04**2, rel=0.1)


def square(x: torch.Tensor) -> float:
    return float(x.square().mean())


@torch.no_grad()
def by_hand(model: Decoder, doc_ids: torch.Tensor | None) -> dict[str, float]:
    """Every measured row from the modules of ``model``, called one by one on IDS."""
    a, rows = model.config.attention, []
    positions = torch.arange(24)[None] if doc_ids is None else torch.tensor([[*range(9), *range(15)], [*range(24)]])
    h = e = model.embed(IDS) + (0 if model.pos is None else model.pos(positions))
    turn = rotations(positions, a.head_dim, model.config.rope_theta) if model.pos is None else None
    inner, kv = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim
    for layer in model.layers:
        x = layer.attn_norm(h)
        q, k, v = layer.attn.qkv(x)[..., : inner + 2 * kv].split((inner, kv, kv), dim=-1)
        attn = layer.attn(x, turn, None if doc_ids is None else segments(doc_ids), None)
        row = {"q": square(q), "k": square(k), "v": square(v), "attention out": square(attn)}
        row = {quantity: value / square(x) for quantity, value in row.items()}
        h = h + attn
        x = layer.mlp_norm(h)
        if model.config.ffn.kind == "swiglu":
            gate, up = layer.mlp.gate_up(x).chunk(2, dim=-1)
            hidden = {"gate": gate, "silu(gate)": F.silu(gate), "gate·up": F.silu(gate) * up}
        else:
            up = layer.mlp.up(x)
            hidden = {"gelu(up)": gelu(up)}
        hidden |= {"up": up, "down": layer.mlp(x)}
        row |= {quantity: square(value) / square(x) for quantity, value in hidden.items()}
        h = h + hidden["down"]
        rows.append(row)
    growth = square(h) / square(e)
    means = {quantity: sum(row[quantity] for row in rows) / len(rows) for quantity in rows[0]}
    return {**means, "per block": (growth - 1) / len(rows), "after L blocks": growth}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("doc_ids", [None, DOCS], ids=["one document", "packed"])
def test_measured_by_hand(options, doc_ids):
    model = decoder(0.3, **options, norm_eps=1e-2)
    assert measured(model, IDS, doc_ids) == pytest.approx(by_hand(model, doc_ids), rel=1e-4)


def test_the_prediction_stands_beside_it():
    model = decoder()
    before = predicted_budget(model.config, stds(model.config, 0.1))
    after = measure_budget(model, IDS, None, before)
    assert [(row.quantity, row.predicted) for row in after] == [(row.quantity, row.predicted) for row in before]
    assert all(isinstance(row, BudgetRow) and row.measured is not None for row in after)


def test_growth_is_against_the_embedded_input():
    model = decoder()
    with torch.no_grad():
        for layer in model.layers:
            layer.attn.o.weight.zero_()
            layer.mlp.down.weight.zero_()
    still = measured(model, IDS)
    assert still["after L blocks"] == 1
    assert still["per block"] == still["down"] == still["attention out"] == 0
    with torch.no_grad():
        model.layers[2].mlp.down.bias = torch.nn.Parameter(torch.full((32,), 3.0))
        model.embed.weight.fill_(0.5)
    grown = measured(model, IDS)
    assert grown["after L blocks"] == pytest.approx(3.5**2 / 0.5**2)
    assert grown["per block"] == pytest.approx((49 - 1) / 3)


def test_padding_is_not_counted():
    model = decoder(0.3)
    ids = torch.cat([torch.zeros(1, 3, dtype=torch.int64), IDS[:1]], 1)
    padded = measured(model, ids, torch.tensor([[-1] * 3 + [0] * 24]))
    assert padded == pytest.approx(measured(model, IDS[:1]), rel=1e-4)
    with pytest.raises(ValueError, match="zero tokens"):
        measured(model, ids, torch.full_like(ids, -1))


def test_not_finite_is_reported():
    model = decoder()
    with torch.no_grad():
        model.layers[1].mlp.down.weight[0, 0] = math.nan
    seen = measured(model, IDS)
    assert math.isnan(seen["down"])
    assert math.isnan(seen["after L blocks"])
    assert math.isnan(measured(decoder(0.0), IDS)["q"])  # 0 / 0


@pytest.mark.parametrize("ids", [IDS, torch.full((1, 4), 999)])
def test_model_is_left_as_it_was(ids):
    model = decoder()
    model.layers[1].eval()
    hook = model.layers[0].register_forward_hook(
        lambda module, _, out: runs.append((module.training, out.requires_grad))
    )
    runs = []
    try:
        measured(model, ids)
    except IndexError:
        assert int(ids.max()) == 999
    assert set(runs) <= {(False, False)}
    hook.remove()
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()) == 0
    assert model.training
    assert not model.layers[1].training
