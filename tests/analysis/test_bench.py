"""What a bench says of a step, against other counts of the same."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import TINY
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seedbed.analysis.bench import Bench, RandomStore, _union, _watched, bench, hints, product_rate
from seedbed.analysis.cost import model_flops, sizes
from seedbed.analysis.resources import activation_bytes
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.parallel.world import World
from seedbed.train.setup import start

CPU = torch.device("cpu")
GATED = ["model.attention.gate=elementwise", "model.attention.n_kv_heads=1"]
GPT2 = ["model.ffn.kind=gelu", "model.norm=layernorm", "model.position=learned", "model.bias=true", "model.tied=true"]
PHASES = ["data", "count", "forward", "loss", "backward", "clipping", "optimizer"]


def config(*overrides: str) -> Config:
    return Config.load(None, [*TINY, "model.vocab_size=300", "optim.name=adamw", *overrides])


def all_pairs(q: Tensor, k: Tensor, v: Tensor, _: object) -> Tensor:
    """Attention as two products, which the counter knows."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


@pytest.mark.parametrize("shape", [[], GATED, GPT2], ids=["llama", "gated", "gpt2"])
def test_flops_are_those_that_torch_counts(shape):
    chosen = config(*shape)
    model, length, rows = Decoder(chosen.model, attend=all_pairs), 32, 3
    initialize_(model, "normal")
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(rows, length, dtype=torch.int64)).sum().backward()
    of = sizes(chosen, length)
    other_half = 6 * of.layers * of.attention * length  # which a causal kernel leaves out
    assert counter.get_total_flops() == rows * length * (model_flops(of) + other_half)


@pytest.fixture(scope="module")
def found() -> Bench:
    return bench(config(), 3, World(CPU))


def test_a_rate_and_its_share(found):
    assert found.tokens == 4 * 32
    assert len(found.seconds) == 3
    assert min(found.seconds) <= found.tokens / found.tokens_per_s <= max(found.seconds)
    half = replace(found, peak=2 * found.peak, ranks=3)
    assert half.peak_share == pytest.approx(found.peak_share / 6)
    assert found.peak_share == found.tokens_per_s * found.flops_a_token / found.peak
    assert found.communication == 0


def test_phases_are_all_of_a_step(found):
    assert list(found.phases) == PHASES
    assert min(found.phases.values()) > 0
    assert sum(map(found.phase_share, PHASES)) == pytest.approx(1)


def test_time_is_put_down_to_its_phase(monkeypatch):
    def slow(*_: object) -> float:
        time.sleep(0.3)
        return 1.0

    monkeypatch.setattr("seedbed.train.loop.clip", slow)
    assert bench(config(), 1, World(CPU)).phases["clipping"] >= 0.3


def test_memory_is_what_tensors_take(found):
    parameters, tensors = found.parameters, len(list(Decoder(config().model).parameters()))
    assert found.memory["parameters"] == found.memory["gradients"] == 4 * parameters
    assert found.memory["optimizer"] == 8 * parameters + 4 * tensors
    assert found.memory["activations"] == pytest.approx(activation_bytes(config(), 32), rel=0.1)
    logits, head = 128 * 300 * 4, 300 * 32 * 4
    assert found.memory["loss"] == pytest.approx(2 * logits + head, rel=0.25)
    assert sum(found.memory[part] for part in ("parameters", "gradients", "optimizer")) < found.peak_memory
    assert found.peak_memory < sum(found.memory.values()) * 1.1


def test_recomputation_and_smaller_passes_need_less(found):
    block = bench(config("parallel.recompute=block"), 1, World(CPU))
    stream = 128 * 32 * 4  # what enters one of two blocks, the last norm, and the head
    assert block.memory["activations"] == pytest.approx(4 * stream, rel=0.2)
    passes = bench(config("train.micro_batch_size=1"), 1, World(CPU))
    assert passes.memory["activations"] == pytest.approx(found.memory["activations"] / 4, rel=0.1)
    assert list(passes.phases) == PHASES


def test_a_store_is_read_and_nothing_is_written(tiny_store, tmp_path):
    run = tmp_path / "run"
    found = bench(config("model.vocab_size=null", f"data.store={tiny_store}", f"run.dir={run}"), 1, World(CPU))
    assert found.tokens == 4 * 32
    assert not run.exists()


def test_a_store_that_is_not_there_is_named_with_the_way_without():
    with pytest.raises(InputError, match=r"data\.store=nowhere: .* data\.store=null model\.vocab_size=8192"):
        bench(config("data.store=nowhere"), 1, World(CPU))


def test_a_job_is_looked_at_without_being_changed():
    chosen, world, seen = config(), World(CPU), []
    job = start(chosen, Path("unused"), RandomStore(chosen), world=world)
    _watched(job, seen.append)
    assert seen == [*PHASES, ""]
    assert job.world is world
    assert (world.place.passed, vars(world).keys()) == (0, vars(World(CPU)).keys())


def test_what_is_missing_is_refused():
    with pytest.raises(InputError, match=r"neither data\.store nor model\.vocab_size is set"):
        bench(config("model.vocab_size=null"), 1, World(CPU))


def test_the_peak_is_that_of_a_product_that_takes_a_while(monkeypatch):
    sides: list[tuple[int, torch.dtype]] = []

    def timed(_: torch.device, work: Callable[[], Tensor]) -> float:
        side, dtype = work().shape[0], work().dtype
        sides.append((side, dtype))
        return 2 * side**3 / 1e9 * (2 if len(sides) % 3 else 1)  # every third is undisturbed

    monkeypatch.setattr("seedbed.analysis.bench._timed", timed)
    assert product_rate(CPU, torch.float64) == pytest.approx(1e9)
    assert sides == [(256, torch.float64)] * 3 + [(512, torch.float64)] * 3


def test_spans_that_overlap_count_once():
    assert _union([(5, 6), (0, 2), (1, 3), (1.5, 2.5)]) == 4
    assert _union([]) == 0


def test_hints_name_what_is_large_and_nothing_else(found):
    memory = {**found.memory, "activations": 1}
    quiet = replace(found, phases={"data": 1, "forward": 99}, memory=memory)
    assert hints(quiet, config()) == []
    slow = replace(quiet, phases={"data": 12, "optimizer": 30, "forward": 58}, communication=60)
    said = hints(slow, config("data.prefetch=0", "data.store=there"))
    assert said[0] == "data takes 12% of a step: set data.prefetch above 0"
    assert [line.split()[0] for line in said] == ["data", "the", "ranks"]
    assert "storage.format bin" in hints(slow, config("data.store=there"))[0]
    assert hints(slow, config())[0].startswith("the optimizer takes 30%")  # random tokens say nothing about reading
    heavy = replace(found, phases=quiet.phases, memory={**memory, "activations": found.peak_memory})
    assert len(hints(heavy, config())) == 1
    assert hints(heavy, config("parallel.recompute=block")) == []
