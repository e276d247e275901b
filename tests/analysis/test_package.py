"""The package of analyses: its modules by name, and nothing heavy before one is asked for."""

import subprocess
import sys

import pytest

import seedbed.analysis


def test_importing_it_is_light():
    code = "import sys, seedbed.analysis; print('torch' in sys.modules, 'seedbed.analysis.weights' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_modules_by_name():
    assert seedbed.analysis.weights.__name__ == "seedbed.analysis.weights"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        seedbed.analysis.nothing  # noqa: B018
