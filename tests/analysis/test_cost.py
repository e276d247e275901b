"""The cost model: counts that can be counted, limits that must hold, and the tables of docs/scaling.md."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seedbed.analysis.cost import Layout, device_flops, kept_bytes, memory, model_flops, sizes, traffic
from seedbed.analysis.speed import HARDWARE, ROOM, fastest, predict, seconds
from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.parallel.wrap import recompute

ROOT = Path(__file__).parents[2]
H100 = HARDWARE["H100"]
SMALL = ["model.vocab_size=96", "model.d_model=64", "model.n_layers=3", "train.batch_size=2"]
MUON = sizes(Config.load(None, SMALL), 32)
DENSE = sizes(Config.load(str(ROOT / "recipes" / "dense-24x2048.yaml")), 2048)


@pytest.mark.parametrize("kind", ["none", "block"])
@pytest.mark.parametrize(
    "shape", [[], ["model.attention.gate=elementwise"], ["model.ffn.kind=gelu", "model.tied=true"]]
)
def test_operations_are_those_of_the_products(kind, shape):
    """But for attention's, which is left out on both sides."""
    config = Config.load(None, [*SMALL, *shape])
    model = Decoder(config.model, attend=lambda q, k, v, visible: q.clone() + (k + v).mean(1, keepdim=True))
    initialize_(model)
    recompute(model.layers, kind)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 32, dtype=torch.int64)).sum().backward()
    without = replace(sizes(config, 32), attention=0)
    assert counter.get_total_flops() == 2 * 32 * device_flops(without, Layout(1, "ddp", kind))


def test_attention_counts_half_of_the_sequence_and_all_of_it_under_a_mask():
    tokens = 32
    forward = 2 * 2 * MUON.attention * tokens  # q k^T and its product with v, of a query over all keys
    assert model_flops(MUON) - 6 * MUON.multiplied == MUON.layers * 3 * forward // 2
    assert device_flops(MUON, Layout(1, device="cpu")) == model_flops(MUON)
    assert device_flops(MUON, Layout(1)) - 6 * MUON.multiplied == MUON.layers * 3 * forward


def test_what_is_split_falls_with_ranks_and_what_is_not_does_not():
    for ranks in (2, 8, 512):
        one, many = memory(DENSE, Layout(1)), memory(DENSE, Layout(ranks, "fsdp"))
        for part in ("parameters", "gradients", "optimizer state"):
            assert many[part] == pytest.approx(one[part] / ranks)
        assert many["activations"] == one["activations"]
        assert memory(DENSE, Layout(ranks, "ddp")) == one
    assert memory(DENSE, Layout(1))["parameters"] == 4 * DENSE.parameters
    assert memory(DENSE, Layout(1))["optimizer state"] == 8 * DENSE.parameters
    accumulated = memory(DENSE, Layout(8, "fsdp", passes=2))
    assert accumulated["gradients"] == 4 * DENSE.parameters
    summed = memory(DENSE, Layout(8, "fsdp", passes=2, reduce_each_pass=True))
    assert summed["gradients"] == 4 * DENSE.parameters / 8


def test_recomputation_spares_more_than_it_needs():
    held = {}
    for kind in ("none", "selective", "block"):
        parts = memory(DENSE, Layout(8, "fsdp", kind, rows=8))
        held[kind] = parts["activations"] + parts["block computed again"]
    assert held["block"] < held["selective"] < held["none"]
    assert held["block"] < 0.2 * held["none"]
    stream = 8 * 2048 * 4 * DENSE.width
    assert kept_bytes(DENSE, Layout(1, "ddp", "block", rows=8, device="cpu")) == (DENSE.layers + 1) * stream


def test_bytes_between_ranks():
    assert traffic(DENSE, Layout(1)) == {}
    assert sum(traffic(DENSE, Layout(4, "ddp")).values()) == 2 * 4 * DENSE.parameters * 3 / 4
    blocks = DENSE.parameters - DENSE.outside
    once = traffic(DENSE, Layout(4, "fsdp"))
    assert once["gathering weights"] == (2 * 2 * blocks + 4 * DENSE.outside) * 3 / 4
    assert once["summing gradients"] == 4 * DENSE.parameters * 3 / 4
    often = traffic(DENSE, Layout(4, "fsdp", passes=8))
    assert often["gathering weights"] == 8 * once["gathering weights"]
    assert often["summing gradients"] == once["summing gradients"]
    each = traffic(DENSE, Layout(4, "fsdp", passes=8, reduce_each_pass=True))
    assert each["summing gradients"] == 8 * once["summing gradients"]


def test_muons_work_is_shared_until_each_rank_has_one_matrix():
    update = [
        seconds(MUON, Layout(ranks, "fsdp"), replace(H100, memory_rate=float("inf"))).update for ranks in (1, 2, 12, 48)
    ]
    matrices = len(MUON.muon)  # of each layer the fused queries, keys and values, the output, gate and up, down
    assert matrices == 12
    assert update[0] > 1.5 * update[1] > 3 * update[2]
    assert update[2] == update[3]


def test_muons_products_are_thirty_cubes_of_a_square_matrix():
    one = replace(MUON, muon=(((64, 64),),))
    spent = seconds(one, Layout(1), replace(H100, memory_rate=float("inf")))
    assert spent.update == pytest.approx(30 * 64**3 / (H100.efficiency * H100.peak))


def test_a_step_lasts_as_long_as_its_parts():
    layout = Layout(64, "fsdp", rows=4)
    spent = seconds(DENSE, layout, H100)
    slow = seconds(DENSE, layout, replace(H100, peak=H100.peak / 2))
    assert slow.compute == 2 * spent.compute
    assert spent.hidden == spent.communication < spent.compute
    cut = seconds(DENSE, layout, replace(H100, inter=H100.inter / 1e3))
    assert cut.hidden == cut.compute
    assert cut.step == pytest.approx(cut.communication + cut.update + cut.control)
    assert cut.waiting > 0.9
    assert seconds(DENSE, Layout(1), H100).communicating == 0


def test_what_ranks_tell_each_other_goes_round_a_ring():
    layout = Layout(512, "ddp")
    spent = seconds(DENSE, layout, H100)
    assert spent.control == 2 * 2 * 511 * 20e-6
    assert seconds(DENSE, Layout(1), H100).control == 0
    parts = spent.compute + spent.update + spent.exchange + spent.communication - spent.hidden + spent.control
    assert spent.step == parts
    assert spent.waiting * spent.step >= spent.control


def test_summing_after_each_pass_is_for_what_does_not_fit_otherwise():
    whole = fastest(DENSE, H100, 8, 256)
    assert not whole.layout.reduce_each_pass
    least = memory(DENSE, Layout(8, "fsdp", "block", 1, 32, reduce_each_pass=True))
    tight = fastest(DENSE, replace(H100, memory=1.05 * sum(least.values()) / ROOM), 8, 256)
    assert tight.layout.reduce_each_pass
    assert tight.layout.passes > 1


def test_mfu_is_at_most_what_products_reach():
    found = predict(DENSE, Layout(1, rows=8), H100)
    assert 0.4 < found.mfu < 0.5
    assert found.tokens_per_s == pytest.approx(8 * 2048 / found.seconds.step)


def test_the_fastest_layout_fits_and_is_the_simplest():
    for gpus, batch in ((8, 256), (64, 256), (512, 512)):
        found = fastest(DENSE, H100, gpus, batch)
        assert found.layout.gpus * found.layout.passes * found.layout.rows == batch
        assert sum(found.memory.values()) <= ROOM * H100.memory
    assert fastest(DENSE, H100, 8, 256).layout.strategy == "ddp"
    tight = fastest(DENSE, replace(H100, memory=24e9), 8, 8)  # 24 GB of weights, gradients and state would not fit
    assert tight.layout.strategy == "fsdp"


@pytest.mark.parametrize(("gpus", "batch", "memory_bytes"), [(8, 12, 80e9), (8, 8, 4e9)])
def test_what_cannot_be_is_said(gpus, batch, memory_bytes):
    with pytest.raises(ValueError, match="evenly|fits"):
        fastest(DENSE, replace(H100, memory=memory_bytes), gpus, batch)


def test_the_document_has_what_the_code_predicts():
    document = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    script = runpy.run_path(str(ROOT / "benchmarks" / "scaling.py"), run_name="benchmark")
    for text in script["tables"]():
        assert text in document, f"run benchmarks/scaling.py: docs/scaling.md has no such part\n{text}"
