"""Time and memory of the chunked loss beside the plain one, forward and backward, in one run.

    python benchmarks/loss_memory.py [--repeats 7] [--json]

Time: both losses in turn within one process, so that a busy machine slows both; the ratio of each pair, its median and
its range. Memory: each loss in a process of its own, the peak of the resident set over what was resident before the
loss, less the gradients of the head and the states (Linux only: it reads /proc).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SHAPES = {"small": (4096, 384, 8192), "large vocabulary": (2048, 1536, 100_000)}  # tokens, width, vocabulary
LOSSES = ("chunked", "plain")


def make(shape: tuple[int, int, int], name: str) -> Callable[[], float]:
    """A function that runs one forward and backward of the loss ``name`` at ``shape`` and returns the loss."""
    import torch
    from torch.nn import functional as F

    from seedbed.train.objective import chunked_cross_entropy

    tokens, width, vocab = shape
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, width, generator=generator, requires_grad=True)
    head = torch.empty(vocab, width).normal_(0, 0.02, generator=generator).requires_grad_()
    targets = torch.randint(vocab, (tokens,), generator=generator)

    def run() -> float:
        hidden.grad = head.grad = None
        if name == "chunked":
            loss = chunked_cross_entropy(hidden, head, targets)
        else:
            loss = F.cross_entropy(F.linear(hidden, head), targets, reduction="sum")
        loss.backward()
        return loss.item()

    return run


def resident(field: str) -> int:
    """Bytes of ``VmRSS`` (now) or ``VmHWM`` (peak). getrusage would count the parent's memory before exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def peak_mb(shape: tuple[int, int, int], name: str) -> float:
    """Peak resident memory in MB of one run beyond inputs and gradients; call it in a fresh process."""
    tokens, width, vocab = shape
    make((64, 16, 128), name)()  # libraries and their workspaces
    run = make(shape, name)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
    run()
    gradients = 4 * (tokens * width + vocab * width)
    return (resident("VmHWM") - before - gradients) / 1e6


def measure(label: str, repeats: int) -> dict[str, object]:
    shape = SHAPES[label]
    runs = {name: make(shape, name) for name in LOSSES}
    losses = {name: run() for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in LOSSES}
    for _ in range(repeats):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    ratios = sorted(p / c for p, c in zip(seconds["plain"], seconds["chunked"], strict=True))
    row: dict[str, object] = {"shape": label, "tokens_width_vocabulary": shape, "repeats": repeats}
    row |= {f"{name}_s": statistics.median(times) for name, times in seconds.items()}
    row |= {"plain_over_chunked": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1]}
    row["loss_difference"] = abs(losses["chunked"] / losses["plain"] - 1)
    for name in LOSSES:
        command = [sys.executable, __file__, "--peak", label, name]
        row[f"{name}_peak_mb"] = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak_mb(SHAPES[options.peak[0]], options.peak[1]))
        return
    rows = []
    for label in options.shape or SHAPES:
        print(f"measuring {label} {SHAPES[label]} ...", file=sys.stderr, flush=True)
        rows.append(measure(label, options.repeats))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(
        f"{'shape':<18}{'chunked s':>10}{'plain s':>9}{'plain/chunked (range)':>24}{'chunked MB':>12}{'plain MB':>10}"
    )
    for row in rows:
        ratio = f"{row['plain_over_chunked']:.2f} ({row['lowest']:.2f}–{row['highest']:.2f})"
        print(
            f"{row['shape']:<18}{row['chunked_s']:>10.3f}{row['plain_s']:>9.3f}{ratio:>24}"
            f"{row['chunked_peak_mb']:>12.0f}{row['plain_peak_mb']:>10.0f}"
        )


if __name__ == "__main__":
    main()
