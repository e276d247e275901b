"""Shared by the tests of faults: the training, and what it makes undisturbed."""

import pytest
from disturbed import ASYNC, SYNC, command, ends_with
from promises import Whole, read_whole


@pytest.fixture(scope="session")
def plain(tiny_store, tmp_path_factory) -> list[str]:
    """The command, without the run's folder."""
    return command(tiny_store, tmp_path_factory.mktemp("recipe") / "recipe.yaml")


@pytest.fixture(scope="session")
def whole(plain, tmp_path_factory) -> Whole:
    run = tmp_path_factory.mktemp("whole") / "run"
    ends_with(0, [*plain, "train.checkpoint_every=1", "train.keep_checkpoints=99"], run)
    return read_whole(run)


@pytest.fixture(params=[SYNC, ASYNC], ids=["sync", "async"])
def training(request, plain) -> list[str]:
    """The command with each way to save."""
    return [*plain, request.param]
