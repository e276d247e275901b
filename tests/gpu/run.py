"""Everything about the GPUs of this machine: the tests of this folder, then tokens/s and MFU of recipes, as JSON.

    python tests/gpu/run.py [--out FILE.json]
    torchrun --nproc-per-node 8 tests/gpu/run.py --no-tests     # the rates of all GPUs together

MFU is the model's operations over the maker's dense bf16 peak, of GPUs in the cost model's table; ``peak_share`` over
what large products reach here. ``--tiny`` measures a tiny model on the CPU instead, to try the script.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECIPES = {"dense-12x768": 8, "astrai-1.2b": 4}
"""Two sizes, and the sequences of a pass on one GPU; a step has four passes."""
VARIANTS = {
    "eager": (),
    "compiled": ("train.compile=true",),
    "fsdp": ("parallel.strategy=fsdp",),
    "recompute block": ("parallel.recompute=block",),
    "recompute selective": ("parallel.recompute=selective",),
}
TINY = ("train.device=cpu", "train.precision=fp32", "model.d_model=64", "model.n_layers=2", "model.attention.n_heads=2",
        "model.attention.n_kv_heads=2", "model.attention.head_dim=32", "model.max_seq_len=64", "model.vocab_size=512",
        "model.ffn.d_ff=128")  # fmt: skip


def maker_peak(name: str) -> float | None:
    """Dense bf16 FLOP/s of the GPU called ``name`` by its driver; None for one that the table lacks."""
    from seedbed.analysis.speed import HARDWARE

    return next((hardware.peak for key, hardware in HARDWARE.items() if key in name), None)


def rates(
    recipes: dict[str, int], variants: dict[str, tuple[str, ...]], steps: int, tiny: bool = False
) -> list[dict[str, Any]]:
    """One row for each recipe and variant that there is reason to measure here, on all ranks together."""
    from seedbed.analysis.bench import bench
    from seedbed.config import Config
    from seedbed.parallel.world import open_world

    rows = []
    with open_world("cpu" if tiny else "cuda", 600) as world:
        for recipe, rows_a_pass in recipes.items():
            for variant, overrides in variants.items():
                if (variant == "fsdp" and world.size == 1) or (variant == "compiled" and tiny):
                    continue
                batch = [f"train.micro_batch_size={rows_a_pass}", f"train.batch_size={4 * rows_a_pass * world.size}"]
                path = ROOT / "recipes" / f"{recipe}.yaml"
                chosen = Config.load(str(path), [*batch, *overrides, *(TINY if tiny else ())])
                found = bench(chosen, steps, world)
                peak, rate = maker_peak(found.device), found.flops_a_token * found.tokens_per_s / found.ranks
                rows.append(
                    {
                        "recipe": recipe,
                        "variant": variant,
                        "device": found.device,
                        "gpus": found.ranks,
                        "precision": found.precision,
                        "parameters": found.parameters,
                        "tokens_per_s": found.tokens_per_s,
                        "mfu": None if peak is None else rate / peak,
                        "peak_share": found.peak_share,
                        "peak_memory": found.peak_memory,
                        "phases": found.phases,
                        "communication": found.communication,
                    }
                )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file for the JSON; without it, standard output")
    parser.add_argument("--steps", type=int, default=10, help="steps to time")
    parser.add_argument("--no-tests", action="store_true", help="rates alone")
    parser.add_argument("--tiny", action="store_true", help="try the script on a CPU")
    arguments = parser.parse_args()
    import torch

    if not (arguments.tiny or torch.cuda.is_available()):
        print("no CUDA device here; --tiny tries the script on the CPU", file=sys.stderr)
        return 2
    failed = 0
    if not arguments.no_tests:
        import pytest

        failed = pytest.main(["-rs", str(Path(__file__).parent)])
    rows = rates(RECIPES, VARIANTS, arguments.steps, arguments.tiny)
    if os.environ.get("RANK", "0") == "0":
        text = json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "rates": rows}, indent=1)
        if arguments.out:
            arguments.out.write_text(text + "\n", encoding="utf-8")
        else:
            print(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
