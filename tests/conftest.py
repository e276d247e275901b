"""Shared by all tests."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

# Tests must not reach for a hub.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data for tests marked `realdata`."""
    folder = os.environ.get("SEEDBED_TEST_DATA")
    if not folder:
        pytest.skip("SEEDBED_TEST_DATA is not set")
    return Path(folder)
