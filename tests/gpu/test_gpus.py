"""Several GPUs train what one does; two processes on a CPU stand in where there are none."""

import pytest
import torch
from parallel.ranks import on_ranks
from short_runs import losses, losses_on_ranks

ARMS = {
    f"{strategy} {optimizer} {precision}": (
        f"parallel.strategy={strategy}",
        f"optim.name={optimizer}",
        f"train.precision={precision}",
        "train.micro_batch_size=1",
    )
    for strategy in ("ddp", "fsdp")
    for optimizer, precision in (("adamw", "fp32"), ("muon", "bf16"))
}


def test_ranks_train_what_one_does(device, tiny_store):
    size, arms = 2, dict(list(ARMS.items())[::3])  # on a CPU one arm of each strategy
    if device == "cuda":
        size, arms = max(size for size in (1, 2, 4, 8) if size <= torch.cuda.device_count()), ARMS
        if size == 1:
            pytest.skip("one CUDA device here; this needs two")
    found = on_ranks(size, losses_on_ranks, tiny_store, device, arms)
    for name, overrides in arms.items():
        alone = losses(tiny_store, device, *overrides)
        for rank in found:
            assert rank[name] == found[0][name]
            assert rank[name] == pytest.approx(alone, abs=1e-4 if "fp32" in name else 0.03), name
