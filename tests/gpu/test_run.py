"""The script of this folder measures what it says, tried on a tiny model."""

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).with_name("run.py")), run_name="script")


@pytest.mark.slow
def test_rates_of_a_tiny_model():
    (row,) = SCRIPT["rates"]({"astrai-1.2b": 2}, {"eager": (), "fsdp": SCRIPT["VARIANTS"]["fsdp"]}, steps=1, tiny=True)
    assert row["recipe"] == "astrai-1.2b"
    assert row["tokens_per_s"] > 0
    assert 0 < row["peak_share"] < 1
    assert row["mfu"] is None  # a CPU has no maker's peak for bf16
    json.dumps(row)


@pytest.mark.parametrize(
    ("name", "peak"), [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("Tesla T4", None)]
)
def test_the_peak_is_the_makers(name, peak):
    assert SCRIPT["maker_peak"](name) == peak
