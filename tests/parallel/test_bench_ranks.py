"""A bench on two ranks."""

import math
from pathlib import Path
from typing import Any

import pytest
from ranks import on_ranks
from tiny import TINY
from torch.profiler import profile

from seedbed.analysis.bench import RandomStore, bench
from seedbed.config import Config
from seedbed.model import Decoder
from seedbed.parallel.world import open_world
from seedbed.train.loop import train_step
from seedbed.train.setup import start


def config(*overrides: str) -> Config:
    return Config.load(None, [*TINY, "model.vocab_size=300", "optim.name=adamw", *overrides])


def two_ranks() -> dict[str, Any]:
    """Of a rank: what a bench finds, and whether the optimizer is one kernel."""
    results = {}
    with open_world("cpu", 60) as world:
        for strategy in ("ddp", "fsdp"):
            chosen = config(f"parallel.strategy={strategy}")
            job = start(chosen, Path("unused"), RandomStore(chosen), world=world)
            with profile(acc_events=True) as profiled:
                train_step(job)
            events = profiled.events() or []
            fused = any(event.name == "aten::_fused_adamw_" for event in events)
            results[strategy] = bench(chosen, 1, world), fused
    return results


@pytest.mark.slow
def test_two_ranks_share():
    first, second = on_ranks(2, two_ranks)
    whole = sum(parameter.numel() for parameter in Decoder(config().model).parameters())
    for strategy, share in (("ddp", 1), ("fsdp", 0.5)):
        (found, fused), (other, _) = first[strategy], second[strategy]
        assert fused
        assert (found.ranks, found.parameters) == (2, whole)
        for part in ("parameters", "gradients"):
            assert found.memory[part] == pytest.approx(share * 4 * whole, rel=0.02)
        assert found.memory == other.memory
        # DDP's buckets, of which gradients are views, are there when the loss makes its logits
        there = found.memory if strategy == "ddp" else ("parameters", "gradients", "optimizer")
        assert sum(found.memory[part] for part in there) <= found.peak_memory
        assert (found.peak, found.tokens) == (other.peak, 128)
        assert 0 < found.communication < math.inf
