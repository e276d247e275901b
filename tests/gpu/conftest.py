"""Tests of what a GPU does otherwise than a CPU. Each runs on the CPU too, so that its own code is tried everywhere."""

import pytest


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return request.param


@pytest.fixture
def gpu() -> str:
    """Asked for by what has no counterpart on a CPU."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return "cuda"


@pytest.fixture(autouse=True)
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than the tiny trainings."""
    monkeypatch.setattr("seedbed.api.write_page", lambda *args, **kwargs: None)
