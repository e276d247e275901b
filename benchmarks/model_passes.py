"""The hand-made derivatives of seedbed/model/passes.py against the plain forms, forward and backward, in one run.

python benchmarks/model_passes.py
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from seedbed.model.passes import RMSNormed, Rotated, SwiGLUGated
from seedbed.model.rope import rotations

BATCH, LENGTH, WIDTH, HEADS, D_FF, ROUNDS = 8, 512, 384, 12, 1024, 20


def plain_rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def plain_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def seconds(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> float:
    leaves = [x.requires_grad_() for x in inputs]
    began = time.perf_counter()
    out = function(*leaves)
    out.backward(out.detach())
    spent = time.perf_counter() - began
    for leaf in leaves:
        leaf.grad = None
    return spent


def main() -> None:
    turn = rotations(torch.arange(LENGTH)[None], WIDTH // 6, 1e4)
    x, weight = torch.randn(BATCH, LENGTH, WIDTH), torch.ones(WIDTH)
    cases: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "RMSNorm": (
            lambda x, w: F.rms_norm(x, (WIDTH,), w, 1e-12),
            lambda x, w: RMSNormed.apply(x, w, 1e-12),  # pyright: ignore
            (x, weight),
        ),
        "rotation": (
            lambda x: plain_rotation(x, *turn),
            lambda x: Rotated.apply(x, *turn),  # pyright: ignore
            (torch.randn(BATCH, LENGTH, HEADS, WIDTH // 6),),
        ),
        "SwiGLU": (plain_swiglu, SwiGLUGated.apply, (torch.randn(BATCH, LENGTH, 2 * D_FF),)),  # pyright: ignore
    }
    print(f"{BATCH}x{LENGTH} tokens, width {WIDTH}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, (plain, ours, inputs) in cases.items():
        pairs = [(seconds(plain, inputs), seconds(ours, inputs)) for _ in range(ROUNDS + 1)][1:]
        ratios = sorted(a / b for a, b in pairs)
        print(
            f"{name:<10} plain {1e3 * statistics.median(a for a, _ in pairs):6.2f} ms, "
            f"by hand {1e3 * statistics.median(b for _, b in pairs):6.2f} ms: "
            f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
