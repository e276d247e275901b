"""Every benchmark can start: its imports hold, which no other test runs."""

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_starts(script, monkeypatch):
    monkeypatch.syspath_prepend(str(script.parent))
    assert callable(runpy.run_path(str(script), run_name="benchmark")["main"])
