"""What the spectra of a GPT-2-medium-shaped model take, against `torch.linalg.svdvals` and against WeightWatcher.

    python benchmarks/spectra.py [--layers 24] [--rounds 3]

The model is Transformers' GPT-2 with random weights, its fused matrices taken apart: 24 layers of six matrices and two
tables. For each matrix the ways take turns in one process; seconds are of the clock, so run it on an idle machine, with
OMP_NUM_THREADS=1 for one thread. `svdvals` in float64 is the accuracy that ours states; it is faster on a matrix with
its long side first, so both are there. Its float32 time stands beside them and is of another accuracy. Memory is that
of a process of its own, over what it held before (Linux only).

WeightWatcher is compared where it is installed: `pip install --no-deps weightwatcher powerlaw` and `pip install
scikit-learn pandas tqdm`. Its `svd_method="accurate"`, and without CUDA its default too, is `scipy.linalg.svd` in
float64 without vectors: a direct decomposition, the accuracy that ours states. (With CUDA its default is
`torch.linalg.svdvals` in float32, of weights rounded to half precision.) It leaves out matrices of more than 50,000
rows, keeps queries, keys and values as one matrix, fits power laws, and has no row cosines. Ours is timed on those same
matrices and on their parts, singular values alone and all measures; and on the whole model with Gaussian yardsticks.
"""

import argparse
import importlib
import importlib.util
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from seedbed.analysis.weights import weight_rows
from seedbed.facts.table import parameter_facts, parts_of
from seedbed.measure.gaussian import gaussian_spectra
from seedbed.measure.singular import singular_values
from seedbed.measure.spectra import gaussian_stats, matrix_stats

WATCHED = 50_000  # rows of the longest matrix that WeightWatcher takes
TABLES = {"Gaussian": False, "singular": True}  # of which memory is measured


def long_first(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "ours": singular_values,
    "svdvals, float64": lambda matrix: torch.linalg.svdvals(matrix.double()),
    "svdvals, float64, long side first": lambda matrix: torch.linalg.svdvals(long_first(matrix).double()),
    "svdvals, float32, long side first": lambda matrix: torch.linalg.svdvals(long_first(matrix)),
}


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def spread(values: Sequence[float], unit: str = "") -> str:
    return f"{statistics.median(values):.2f}{unit} ({min(values):.2f}-{max(values):.2f})"


def model_of(layers: int) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=layers, n_head=16)).eval()


def matrices_of(model: nn.Module) -> list[Tensor]:
    facts = [fact for fact in parameter_facts(model) if fact.is_matrix]
    named = dict(model.named_parameters())
    return [part.detach() for _, part in parts_of(facts, named)]


def against_svdvals(matrices: Sequence[Tensor], rounds: int) -> None:
    totals = [dict.fromkeys(WAYS, 0.0) for _ in range(rounds)]
    worst = 0.0
    for matrix in matrices:
        found = {}
        for total in totals:
            for name, way in WAYS.items():
                began = time.perf_counter()
                found[name] = way(matrix)
                total[name] += time.perf_counter() - began
        direct = found["svdvals, float64, long side first"]
        worst = max(worst, float((found["ours"] / direct - 1).abs().max()))
    for name in WAYS:
        times, ratios = [total[name] for total in totals], [total["ours"] / total[name] for total in totals]
        print(f"{name:36}{spread(times, ' s'):>24}   ours takes {spread(ratios, 'x')}")
    print(f"largest relative difference of a value from float64 svdvals: {worst:.1e}")


def against_weightwatcher(model: nn.Module, rounds: int) -> None:
    if importlib.util.find_spec("weightwatcher") is None:
        print("WeightWatcher is not installed: not compared")
        return
    weightwatcher = importlib.import_module("weightwatcher")
    logging.getLogger("weightwatcher").setLevel(logging.ERROR)
    facts = parameter_facts(model)
    whole = [p.detach() for p in model.parameters() if p.ndim == 2 and max(p.shape) <= WATCHED]
    apart = [matrix for matrix in matrices_of(model) if max(matrix.shape) <= WATCHED]

    def everything() -> None:
        gaussian_stats.cache_clear()
        gaussian_spectra.cache_clear()
        weight_rows(model.named_parameters(), facts)

    works: dict[str, Callable[[], object]] = {
        f"singular values of those {len(whole)} matrices": lambda: [singular_values(matrix) for matrix in whole],
        f"singular values of their {len(apart)} parts": lambda: [singular_values(matrix) for matrix in apart],
        f"all measures of those {len(whole)} matrices": lambda: [matrix_stats(matrix) for matrix in whole],
        f"all measures of their {len(apart)} parts": lambda: [matrix_stats(matrix) for matrix in apart],
        "all measures of the whole model, with yardsticks": everything,
    }
    watcher, theirs, layers = weightwatcher.WeightWatcher(model=model), [], 0
    ours: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        began = time.perf_counter()
        layers = len(watcher.analyze(svd_method="accurate"))
        theirs.append(time.perf_counter() - began)
        for name, work in works.items():
            ours[name].append(seconds(work))
    print(f"WeightWatcher's analyze, {layers} layers {spread(theirs, ' s')}")
    for name, times in ours.items():
        ratios = [slow / fast for slow, fast in zip(theirs, times, strict=True)]
        print(f"  ours, {name}: {spread(times, ' s')}, {spread(ratios, 'x')} as fast")


def resident(field: str) -> float:
    """MB of ``VmRSS`` (now) or ``VmHWM`` (peak). getrusage would count the parent's memory before exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def memory(name: str) -> tuple[float, float]:
    """MB of a GPT-2 token table, and of the peak over it while it is measured; call it in a fresh process."""
    matrix_stats(torch.randn(64, 32))  # libraries and their workspaces
    table = torch.randn(50257, 1024)
    if TABLES[name]:
        table[:, 1] = table[:, 0]
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
    matrix_stats(table)
    return table.numel() * 4 / 2**20, resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", choices=TABLES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(json.dumps(memory(arguments.memory)))
        return
    model = model_of(arguments.layers)
    matrices = matrices_of(model)
    print(f"{len(matrices)} matrices, torch {torch.__version__}, {torch.get_num_threads()} threads")
    against_svdvals(matrices, arguments.rounds)
    against_weightwatcher(model, arguments.rounds)
    for name in TABLES:
        command = [sys.executable, __file__, "--memory", name]
        table, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"a table of {table:.0f} MB, {name}: measured in {peak:.0f} MB beside it")


if __name__ == "__main__":
    main()
