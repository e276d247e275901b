"""The receipt: measured numbers, replay to the same bits under every law, and a print that can be read."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from seedbed.config import Config, InitConfig
from seedbed.errors import InputError
from seedbed.facts.table import parameter_facts
from seedbed.init import InitReport, apply_plan, initialize_, make_plan
from seedbed.init.apply import draw
from seedbed.init.plan import Joint
from seedbed.laws import LAWS, Distribution
from seedbed.model import Decoder

OPTIONS = {"deepnorm": {"post_norm": True}, "reuse": {"checkpoint": "model.safetensors"}}


def decoder(*overrides: str) -> Decoder:
    base = ["vocab_size=40", "d_model=32", "n_layers=2", "attention.n_heads=2", "attention.gate=headwise",
            "position=learned", "max_seq_len=16", "ffn.d_ff=48"]  # fmt: skip
    return Decoder(Config.load(None, [f"model.{override}" for override in (*base, *overrides)]).model)


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def replayed(report: InitReport, model: nn.Module, folder: Path) -> InitReport:
    (folder / "receipt.json").write_text(json.dumps(report.dump()))
    saved = InitReport.load(folder / "receipt.json")
    assert saved == report
    return apply_plan(model, saved.plan, saved.seed)


@pytest.mark.parametrize("law", LAWS)
def test_a_receipt_replays_to_the_same_bits_under_every_law(law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, third = decoder(), decoder(), decoder()
    initialize_(third, "xavier", seed=1)
    save_file(state(third), "model.safetensors")
    for model in (first, second) if law == "deepnorm" else ():
        for layer in model.layers:
            layer.placement = None  # pyright: ignore
    report = initialize_(first, law, seed=2, **OPTIONS.get(law, {}))
    assert replayed(report, second, tmp_path) == report
    for name, tensor in state(second).items():
        assert torch.equal(tensor, state(first)[name]), name


def test_what_was_kept_stays_under_a_replay(tmp_path):
    first, second = decoder(), decoder()
    for model in (first, second):
        initialize_(model, "normal", seed=1)
    report = initialize_(first, "orthogonal", seed=2, only=["layers.1.mlp.down.weight"])
    assert replayed(report, second, tmp_path) == report
    assert all(torch.equal(tensor, state(first)[name]) for name, tensor in state(second).items())


def test_rows_are_measured_on_what_the_model_holds():
    model = decoder()
    report = initialize_(model, "realistic", seed=2)
    qkv = model.layers[1].attn.qkv.weight  # pyright: ignore
    rows = {row.name: row for row in report.rows}
    for index, block in enumerate("qkv"):
        row, part = rows[f"layers.1.attn.{block}.weight"], qkv[32 * index : 32 * (index + 1)]  # pyright: ignore
        assert row.std == pytest.approx(part.std(correction=0).item(), rel=1e-5)
        assert row.mean == pytest.approx(part.mean().item(), abs=1e-7)
        assert row.off == pytest.approx(row.std / row.target_std - 1)
    planned = next(row for row in report.plan.rows if row.name == "layers.1.attn.q.weight")
    whole = draw((96, 32), planned.distribution, 2, "layers.1.attn.qkv.weight")
    assert torch.equal(qkv[:96], whole)  # pyright: ignore
    norm = rows["norm.weight"]
    assert (norm.std, norm.mean, norm.target_std, norm.off) == (0, 1, 0, 0)


def test_a_padding_row_is_zero_and_left_out_of_the_measure():
    model = nn.Embedding(4, 64, padding_idx=2)
    row = initialize_(model, "normal", std=0.1, seed=1).rows[0]
    rest = torch.cat((model.weight[:2], model.weight[3:]))
    assert model.weight[2].eq(0).all()
    assert row.std == pytest.approx(rest.std(correction=0).item(), rel=1e-5)


def test_layers_share_a_line_which_shows_the_one_farthest_from_its_target():
    report = initialize_(decoder("n_layers=12"), "gpt2", seed=1, std=0.05)
    lines = str(report).splitlines()
    assert (
        lines[0]
        == f"gpt2 std=0.05, seed 1: {report.plan.n_parameters:,} parameters: {drawn(report):,} drawn, 800 constant"
    )
    assert len(lines) == 2 + 14
    line = next(line for line in lines if line.startswith("layers.*.attn.o.weight"))
    rows = [row for row in report.rows if row.name.endswith("attn.o.weight")]
    worst = max(rows, key=lambda row: abs(row.off))
    assert line.split() == [
        "layers.*.attn.o.weight", "12", "attn.o", "32×32", "N(0,", f"{0.05 / math.sqrt(24):.4g}²)",
        f"{0.05 / math.sqrt(24):.4g}", f"{worst.std:.4g}", f"{worst.off:+.2%}",
    ]  # fmt: skip
    norm = next(line for line in lines if line.startswith("layers.*.attn_norm.weight"))
    assert norm.split() == ["layers.*.attn_norm.weight", "12", "norm", "32", "=", "1", "0"]


def drawn(report: InitReport) -> int:
    return sum(row.numel for row in report.plan.rows if row.distribution.is_drawn)


def test_the_print_tells_of_joint_draws_ties_padding_and_what_was_kept():
    model = decoder("tied=true")
    model.add_module("tied_head", nn.Linear(32, 40, bias=False))
    model.tied_head.weight = model.embed.weight  # pyright: ignore
    model.embed.padding_idx = 3
    text = str(initialize_(model, "magnitude", seed=1))
    for layer in range(2):  # a line a layer: the scale changes with depth
        assert text.count(f"in one draw, layers.{layer}.attn.qkv.weight") == 3
        assert f"layers.{layer}.mlp.up.weight" in text
    assert "row 3 zero; also tied_head.weight" in text
    report = initialize_(model, "normal", seed=1, only=["pos.weight"])
    assert "512 drawn, " in str(report).splitlines()[0]
    kept = next(line for line in str(report).splitlines() if line.startswith("layers.*.mlp.up.weight"))
    largest = max(row.std for row in report.rows if row.name.endswith("mlp.up.weight"))
    assert kept.split() == ["layers.*.mlp.up.weight", "2", "mlp.up", "48×32", "kept", f"{largest:.4g}"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": (5, 69)}, "lacks"),
        ({"expert": 5}, "lacks"),
        ({"zero_row": 999}, "lacks"),
        ({"zero_row": -1}, "lacks"),
        ({"shape": (16, 64)}, "lacks"),
        ({"distribution": Distribution("normal", float("nan"))}, "std nan"),
        ({"distribution": Distribution("normal", 0.0)}, "std 0"),
        ({"joint": Joint("qkv", (96, 32), (0, 3))}, "joint draw"),
        ({"joint": Joint("qkv", (96, 32), (80, 112))}, "joint draw"),
    ],
)
def test_a_plan_edited_by_hand_is_refused_before_anything_is_drawn(change, message):
    model = Decoder(Config.load(None, ["model.vocab_size=40", "model.d_model=32", "model.n_layers=1"]).model)
    plan = make_plan(parameter_facts(model), InitConfig(law="gamma"))
    rows = [replace(row, **change) if row.role == "attn.q" else row for row in plan.rows]
    with pytest.raises(InputError, match=message):
        apply_plan(model, replace(plan, rows=tuple(rows)), 0)
    assert all(torch.isnan(parameter).all() for parameter in model.parameters())
