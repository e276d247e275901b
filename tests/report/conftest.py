"""A small run, made by hand: curves with a known shape, weights drawn for the purpose."""

import math

import pytest
import torch

from seedbed.measure.rows import WeightRow
from seedbed.measure.sink import SinkReport
from seedbed.measure.spectra import gaussian_stats, matrix_stats
from seedbed.report.page import RunReport

SHAPES = {
    "embed": (200, 32), "attn.q": (32, 32), "attn.k": (16, 32), "attn.v": (16, 32), "attn.o": (32, 32),
    "attn.gate": (32, 32), "mlp.gate": (96, 32), "mlp.up": (96, 32), "mlp.down": (32, 96), "head": (200, 32),
}  # fmt: skip
LAYERS = 4


def made_metrics(steps: int = 120) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps + 1, generator=generator).tolist()
    rows = []
    for step in range(1, steps + 1):
        loss = 3.4 + 4.0 * math.exp(-step / (steps / 6)) + 0.06 * noise[step]
        rate = 2e-3 * min(1, step / 10, 1 - math.sqrt(max(0, step - 0.8 * steps) / (0.2 * steps)))
        rows.append(
            {
                "kind": "train",
                "step": step,
                "loss": loss,
                "lr": rate,
                "grad_norm": 1.0,
                "tokens": 4096 * step,
                "tokens_per_s": 11_000 + 400 * noise[step],
                "seconds": 0.37 * step,
            }
        )
        if step % (steps // 4) == 0:
            nats = loss + 0.1
            rows.append(
                {
                    "kind": "eval",
                    "step": step,
                    "nats_per_token": nats,
                    "bits_per_byte": nats / 2.4,
                    "tokens": 9000,
                    "bytes": 31000,
                }
            )
    return rows


def made_weights(trained: bool) -> list[WeightRow]:
    generator = torch.Generator().manual_seed(7)
    rows = []
    for role, (m, n) in SHAPES.items():
        inside = role not in ("embed", "head")
        for layer in range(LAYERS) if inside else [None]:
            weight = torch.randn(m, n, generator=generator) / n
            if trained:
                strength = (0.2 + 0.15 * (layer or 0)) / n**0.5
                weight = weight + strength * torch.outer(
                    torch.randn(m, generator=generator), torch.randn(n, generator=generator)
                )
            name = f"layers.{layer}.{role}.weight" if inside else f"{role}.weight"
            rows.append(WeightRow(name, role, layer, matrix_stats(weight), gaussian_stats(m, n)))
    return rows


def made_sink(scale: float) -> SinkReport:
    scores = tuple(tuple(0.03 + scale * layer * (1 + head) / 20 for head in range(4)) for layer in range(LAYERS))
    return SinkReport(scores, uniform=0.031, queries=4000, length=128)


@pytest.fixture(scope="session")
def metrics() -> list[dict]:
    return made_metrics()


@pytest.fixture(scope="session")
def weights() -> tuple[list[WeightRow], list[WeightRow]]:
    return made_weights(False), made_weights(True)


@pytest.fixture(scope="session")
def sinks() -> tuple[SinkReport, SinkReport]:
    return made_sink(0.05), made_sink(0.8)


@pytest.fixture(scope="session")
def run_report(metrics, weights, sinks) -> RunReport:
    law = {"kind": "normal", "std": 1 / 32, "value": 0.0}
    rows = [
        {
            "name": row.name,
            "role": row.role,
            "shape": list(row.stats.shape),
            "distribution": f"N(0, {1 / row.stats.shape[1]:.4g}²)",
            "target_std": 1 / row.stats.shape[1],
            "std": row.stats.std,
            "mean": row.stats.mean,
        }
        for row in weights[0]
    ]
    rows.append(
        {
            "name": "norm.weight", "role": "norm", "shape": [32], "distribution": "= 1", "target_std": 0.0, "std": 0.0,
            "mean": 1.0,
        }
    )  # fmt: skip
    plan = {"law": "gamma", "options": {"gamma": 1.0}, "rows": [{"distribution": law}]}
    return RunReport(
        name="runs/quickstart",
        config={
            "run": {"dir": "runs/quickstart", "seed": 0},
            "model": {
                "vocab_size": 2048,
                "d_model": 32,
                "n_layers": 4,
                "attention": {"n_heads": 4, "gate": "elementwise"},
            },
            "init": {"law": "gamma", "gamma": 1.0},
            "optim": {"name": "muon", "lr": 2e-3, "betas": [0.9, 0.95]},
        },
        metrics=metrics,
        receipt={"format_version": 1, "seed": 0, "plan": plan, "rows": rows},
        versions={"seedbed": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "platform": "Linux x86_64"},
        data={"documents": 1234, "training tokens": 900_000, "held-out tokens": 50_000},
        weights_before=weights[0],
        weights_after=weights[1],
        sink_before=sinks[0],
        sink_after=sinks[1],
        prompt="The module",
        sample=" defines a function <script>alert('x')</script> & 中文的种子 🌱\n    return None\n",
    )
