"""The coordinate check comes out flat where it should, and only there."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch

from seedbed.analysis.coordcheck import _batch, changes, coord_check, variant
from seedbed.analysis.scaling import at_width
from seedbed.config import Config, InitConfig
from seedbed.data.split import Batch
from seedbed.data.store import Store
from seedbed.errors import GuardStop, InputError
from seedbed.init import initialize_
from seedbed.laws import LAWS, Distribution
from seedbed.model import Decoder
from seedbed.optim import groups
from seedbed.report.preflight_rows import FLAT_SLOPE

MUP = InitConfig(law="mup", base_width=32)
WIDTHS = (32, 64, 128, 256)
GPT2 = ["model.position=learned", "model.norm=layernorm", "model.bias=true", "model.ffn.kind=gelu"]
GATED = ["model.attention.gate=elementwise", "model.attention.qk_norm=head", "model.attention.n_kv_heads=4"]


def config(*overrides: str) -> Config:
    shape = ["model.vocab_size=256", "model.d_model=128", "model.attention.n_heads=8", "model.ffn.d_ff=384"]
    return Config.load(None, [*shape, "optim.lr=2e-3", *overrides])


def slopes(check, activation: str) -> list[float | None]:
    return [row.slope for row in check.rows if row.activation == activation]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("shape", [[], GPT2, GATED], ids=["llama", "gpt2", "gated"])
def test_mup_is_flat(optimizer, shape):
    check = coord_check(config(f"optim.name={optimizer}", *shape), MUP, WIDTHS)
    assert check.flat, check.steepest
    assert (check.optimizer, check.lr, check.tokens, check.data) == (optimizer, 2e-3, 128, "random ids")
    assert slopes(check, "layers.0.mlp weights")[0] is None  # behind a zero head
    assert all(slope is not None for slope in slopes(check, "logits"))


def test_mup_is_flat_with_norms_behind_the_branches_too():
    check = coord_check(config("optim.name=adamw", "model.norm_placement=post"), MUP, (32, 64, 128), seeds=1)
    assert check.flat, check.steepest


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_normal_is_visibly_not(optimizer):
    check = coord_check(config(f"optim.name={optimizer}"), InitConfig(law="normal"), WIDTHS)
    assert not check.flat
    for activation in ("logits", "layers.0.attn weights", "layers.0.mlp", "layers.1.attn", "layers.1.mlp weights"):
        assert min(slopes(check, activation)) > 2 * FLAT_SLOPE, activation


@pytest.mark.parametrize(
    ("optimizer", "factor", "sign"),
    [("adamw", "none", 1), ("adamw", "muon", 1), ("muon", "none", 1), ("muon", "adamw", -1)],
)
def test_a_wrong_power_of_the_width_in_the_rate_is_seen(optimizer, factor, sign, monkeypatch):
    right = groups.rate_factor
    wrong = (lambda *_: 1.0) if factor == "none" else lambda fact, base, _: right(fact, base, factor)
    monkeypatch.setattr(groups, "rate_factor", wrong)
    check = coord_check(config(f"optim.name={optimizer}"), MUP, WIDTHS)
    assert not check.flat
    for branch in ("attn", "mlp"):
        assert max(sign * slope for slope in slopes(check, f"layers.0.{branch} weights") if slope is not None) > 0.25


def test_a_missing_output_multiplier_is_seen(monkeypatch):
    forward = Decoder.forward

    def unmultiplied(self, *args, **kwargs):
        self.output_multiplier = 1.0
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Decoder, "forward", unmultiplied)
    check = coord_check(config("optim.name=adamw"), MUP, WIDTHS)
    assert min(slopes(check, "logits")) > 0.7


@pytest.mark.parametrize("role", ["hidden", "head"])
def test_a_wrong_scale_of_the_draw_is_seen(role, monkeypatch):
    def other(fact, *, base_width: int = 32, std: float = 0.02) -> Distribution:
        given = mup(fact, base_width=base_width, std=std)
        fixed = fact.role == "head" if role == "head" else fact.role.startswith(("attn.v", "attn.o", "mlp."))
        return Distribution("normal", std) if fixed else given

    mup = LAWS["mup"]
    monkeypatch.setitem(LAWS, "mup", other)
    assert not coord_check(config("optim.name=adamw"), MUP, WIDTHS).flat


def test_a_tied_head_cannot_be_zero_and_its_first_logits_fall():
    """What the drawn table adds to the logits falls as d^-1/2; it is most of what moves in the first steps."""
    check = coord_check(config("optim.name=adamw", "model.tied=true", *GPT2), MUP, WIDTHS)
    assert -0.5 < slopes(check, "logits")[0] < -0.2
    hidden = [row.slope for row in check.rows if row.activation != "logits"]
    assert max(abs(slope) for slope in hidden if slope is not None) < FLAT_SLOPE


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_over_the_widths_of_the_command(optimizer):
    full = config(f"optim.name={optimizer}", "model.attention.gate=elementwise")
    assert coord_check(full, InitConfig(law="mup", base_width=64)).flat
    assert not coord_check(full, InitConfig(law="normal")).flat


def test_the_rows_are_what_they_say(tiny_store):
    split = Store(tiny_store).split("train")
    check = coord_check(config("model.vocab_size=300", "model.max_seq_len=32"), MUP, (64, 32, 32), 2, 1, split)
    assert check.widths == (32, 64)
    assert check.data == "the first windows of split train"
    names = ["embedded input"]
    names += [f"layers.{i}.{what}" for i in (0, 1) for what in ("attn", "attn weights", "mlp", "mlp weights")]
    names += ["norm", "logits"]
    assert [(row.activation, row.step) for row in check.rows] == [(name, step) for name in names for step in (1, 2)]
    moved = next(row for row in check.rows if row.activation == "norm" and row.step == 2)
    assert moved.slope == pytest.approx(math.log(moved.changes[1] / moved.changes[0]) / math.log(2))
    assert not any(next(row for row in check.rows if row.activation == "norm").changes)
    assert json.loads(json.dumps(asdict(check)))["rows"][0]["activation"] == "embedded input"
    random = coord_check(config("model.vocab_size=300", "model.max_seq_len=32"), MUP, (32, 64), 2, 1)
    assert random.rows[-1].changes != check.rows[-1].changes
    steep = replace(check, rows=(replace(moved, slope=-0.31), replace(moved, slope=0.2), replace(moved, slope=None)))
    assert (steep.steepest.slope, steep.flat) == (-0.31, False)
    assert replace(steep, rows=steep.rows[1:]).flat


def test_changes_by_hand():
    c = config("model.n_layers=1").model
    models = [Decoder(c), Decoder(c)]
    for model in models:
        initialize_(model, "normal")
    place = torch.arange(8)[None]
    batch = Batch(place, place, torch.zeros_like(place), place)
    assert set(changes(models[1], models[0], batch).values()) == {0.0}
    with torch.no_grad():
        models[1].embed.weight += 0.5
        moved = changes(models[1], models[0], batch)
        assert moved["embedded input"] == pytest.approx(0.5)
        assert moved["layers.0.attn"] > 0.01
        assert moved["layers.0.attn weights"] == 0 == moved["layers.0.mlp weights"]  # all of it came from below
        models[1].layers[0].mlp.down.weight.zero_()
        moved = changes(models[1], models[0], batch)
        (out,) = (models[0].layers[0].mlp(models[0].layers[0].mlp_norm(x)) for x in (_stream(models[1], batch),))
        assert moved["layers.0.mlp weights"] == pytest.approx(out.square().mean().sqrt().item(), rel=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for m in models for module in m.modules())
    assert all(model.training for model in models)


def _stream(model: Decoder, batch) -> torch.Tensor:
    """What the first feed-forward network's norm reads."""
    x, rotation, visible = model.embedded(batch.ids, batch.doc_ids)
    return x + model.layers[0].attn(model.layers[0].attn_norm(x), rotation, visible, None)


@pytest.mark.parametrize("recipe", ["astrai-1.2b", "dense-12x768"])
def test_a_variant_has_the_multipliers_of_its_width(recipe):
    full = Config.load(f"recipes/{recipe}.yaml", ["init.law=mup", "init.base_width=64"])
    for growth in (1, 8):
        found = variant(full, 64 * growth, 64)
        shape = at_width(full.model, 64 * growth, 64)
        assert (found.model.d_model, found.model.n_layers, found.model.ffn) == (64 * growth, 2, shape.ffn)
        assert found.model.attention.n_heads == shape.attention.n_heads
        assert found.model.output_multiplier == 1 / growth
        assert found.model.attention.scale == 8 / shape.attention.head_dim


def test_narrower_heads_have_their_own_usual_scale():
    assert variant(Config.load("recipes/astrai-1.2b.yaml"), 64, 64).model.attention.scale == 10**-0.5


def test_what_was_set_by_hand_is_kept():
    found = variant(config("model.output_multiplier=0.3", "optim.base_width=32"), 64, 32)
    assert (found.model.output_multiplier, found.optim.base_width) == (0.3, 32)


def test_widths_that_do_not_compare_are_refused():
    with pytest.raises(InputError, match="multiples of the smallest, not 64, 96"):
        coord_check(config(), MUP, (64, 96))


def test_a_vocabulary_is_needed():
    with pytest.raises(InputError, match=r"model\.vocab_size is not set"):
        coord_check(Config.load(None, []), MUP)


def test_a_rate_that_breaks_the_model_is_named():
    with pytest.raises(GuardStop, match=r"at width 32 .* not finite after step \d; a lower optim\.lr"):
        coord_check(config("optim.name=adamw", "optim.lr=1e6"), InitConfig(law="normal"), (32, 64))


def test_a_check_in_which_nothing_moves_is_none():
    with pytest.raises(GuardStop, match="3 steps change nothing"):
        coord_check(config("optim.name=adamw"), InitConfig(law="normal", std=1e15), (32, 64))


def test_the_batch_is_the_beginning_of_the_split(tiny_store):
    split = Store(tiny_store).split("train")
    first, batch = split.windows(range(4)), _batch(split, 300)
    assert all(torch.equal(ours, whole[:, :32]) for ours, whole in zip(batch, first, strict=True))
