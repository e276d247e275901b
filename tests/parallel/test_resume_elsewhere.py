"""A run that goes on with other ranks, another strategy or another number of passes goes on with the same samples."""

from itertools import chain
from pathlib import Path

import pytest
from ranks import on_ranks
from tiny import config, quiet
from trainings import digest

from seedbed.api import fit
from seedbed.data.loader import Loader
from seedbed.data.split import Batch

STEPS = (7, 12, 20)
"""Steps after which the run is stopped; batches of 64 of the tiny store's bins."""


def trained(store: Path, run: Path, steps: int, *overrides: str) -> list[list[str]]:
    """Train on; of each step what this rank read of each sequence."""
    read: list[list[str]] = []
    make = Loader.next_batch

    def watched(self: Loader) -> Batch:
        batch = make(self)
        read.append([digest(row) for row in batch.ids])
        return batch

    Loader.next_batch = watched
    try:
        constant = ("train.batch_size=64", "optim.schedule.kind=constant", f"train.steps={steps}", *overrides)
        fit(config(store, run, *constant), quiet)
    finally:
        Loader.next_batch = make
    return read


def joined(ranks: list[list[list[str]]]) -> list[list[str]]:
    """Of each step all samples, in their order."""
    return [list(chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)]


@pytest.fixture(scope="module")
def uninterrupted(tiny_store, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, joined([trained(tiny_store, run, STEPS[-1])])


def losses(run: Path) -> list[float]:
    from seedbed.train.metrics import read_metrics

    return [row["loss"] for row in read_metrics(run) if row["kind"] == "train"]


@pytest.mark.slow
def test_two_ranks_then_four_then_one(tiny_store, tmp_path, uninterrupted):
    from seedbed.data.store import Store

    bins, (whole, samples) = len(Store(tiny_store).split("train")), uninterrupted
    first, second = 64 * STEPS[0], 64 * STEPS[1]
    assert first < bins < second < 2 * bins  # stopped in the first epoch and in the second
    run = tmp_path / "run"
    read = joined(on_ranks(2, trained, tiny_store, run, STEPS[0], "parallel.strategy=fsdp"))
    read += joined(on_ranks(4, trained, tiny_store, run, STEPS[1], "train.micro_batch_size=8"))
    read += joined([trained(tiny_store, run, STEPS[2], "parallel.recompute=block", "train.micro_batch_size=16")])
    assert read == samples
    assert losses(run) == pytest.approx(losses(whole), abs=1e-5)
    assert (run / "report.html").is_file()
