"""The loader: one order on any number of ranks, resumed to the exact next sample, whatever was made ahead."""

import gc
import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS
from stores import Text, make_store

from seedbed.data.loader import Loader
from seedbed.data.order import sorted_draws
from seedbed.data.split import Batch
from seedbed.data.store import Store
from seedbed.errors import InputError


class Bins:
    """Stands for a split: bin i is the row [i]."""

    name, fingerprint, token_fingerprint = "train", "bins", "bins"

    def __init__(self, count: int):
        self.count = count
        self.made = 0

    def __len__(self) -> int:
        return self.count

    def windows(self, indices: np.ndarray) -> Batch:
        self.made += 1
        return Batch(*[torch.tensor(indices)[:, None]] * 4)


def given_out(loaders: list[Loader], batches: int) -> list[int]:
    """The samples of the next batches of all ranks together."""
    return [bin for _ in range(batches) for loader in loaders for bin in loader.next_batch().ids[:, 0].tolist()]


def ranks(split, batch_size: int, world_size: int, prefetch: int = 0, seed: int = 9) -> list[Loader]:
    return [Loader(split, batch_size, seed, 0, rank, world_size, prefetch) for rank in range(world_size)]


def uninterrupted(bins: int, samples: int, seed: int = 9) -> list[int]:
    return given_out([Loader(Bins(bins), samples, seed, prefetch=0)], 1) if samples else []


def test_every_epoch_reads_every_bin_once_and_orders_differ():
    samples = given_out([Loader(Bins(31), 7, seed=3)], 31 * 3)
    epochs = [samples[first : first + 31] for first in range(0, len(samples), 31)]
    assert len(epochs) == 21
    assert all(sorted(epoch) == list(range(31)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 21
    assert uninterrupted(31, 31, seed=4) != uninterrupted(31, 31, seed=3) == epochs[0]


parts = st.lists(
    st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 3), st.integers(0, 2), st.integers(0, 6)), max_size=5
)


@settings(deadline=None, max_examples=50)
@given(parts, st.integers(1, 40), st.integers(1, 10))
def test_resumed_order_equals_the_uninterrupted_one(parts, bins, per_rank):
    """Stopped mid-epoch, in epoch 2, several times in an epoch, going on with other ranks, batch sizes, prefetch."""
    samples, state = [], None
    for world_size, prefetch, grow, batches in [*parts, (1, 0, 0, 2)]:
        loaders = ranks(Bins(bins), 4 * per_rank * 2**grow, world_size, prefetch)
        if state is not None:
            for loader in loaders:
                loader.restore(state)
        samples += given_out(loaders, batches)
        states = [json.loads(json.dumps(loader.state())) for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
        assert state["position"] == len(samples)
        assert loaders[0].epoch == len(samples) // bins
    assert samples == uninterrupted(bins, len(samples))


def test_two_then_four_then_one_rank_in_the_second_epoch():
    """The named case, without chance: 10 bins, batches of 4, twice in one epoch."""
    samples, state = [], None
    for world_size in (2, 4, 1):
        loaders = ranks(Bins(10), 4, world_size, prefetch=2)
        for loader in loaders:
            if state is not None:
                loader.restore(state)
        samples += given_out(loaders, 2)
        state = loaders[0].state()
    assert samples == uninterrupted(10, 24)
    assert [sorted(samples[:10]), sorted(samples[10:20])] == [list(range(10))] * 2


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_so_many_batches_are_made_ahead_and_none_is_counted(prefetch, world_size):
    split = Bins(50)
    loader = Loader(split, 4, seed=1, world_size=world_size, prefetch=prefetch)
    for handed_out in range(1, 4):
        loader.next_batch()
        assert loader.position == loader.state()["position"] == 4 * handed_out
        wait_until(lambda made=handed_out + prefetch: split.made == made)


def wait_until(true) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(1e-3)


def test_a_change_of_position_drops_what_was_made_ahead():
    wanted = uninterrupted(50, 40)
    loader = Loader(Bins(50), 4, seed=9)
    assert given_out([loader], 5) == wanted[:20]
    early = loader.state() | {"position": 8}
    loader.position = 28
    assert given_out([loader], 2) == wanted[28:36]
    loader.restore(early)
    assert given_out([loader], 3) == wanted[8:20]
    loader.restore(loader.state())
    assert given_out([loader], 1) == wanted[20:24]


class Broken(Bins):
    """The batch that begins with the ninth sample cannot be made."""

    def __init__(self, count: int):
        super().__init__(count)
        self.bad = uninterrupted(count, 9)[8]

    def windows(self, indices: np.ndarray) -> Batch:
        if self.bad == indices[0]:
            raise OSError("the disk is gone")
        return super().windows(indices)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_error_is_raised_at_its_batch_and_the_position_stays(prefetch):
    split = Broken(50)
    loader = Loader(split, 4, seed=9, prefetch=prefetch)
    assert given_out([loader], 2) == uninterrupted(50, 8)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            loader.next_batch()
        assert loader.position == 8
    split.bad = -1
    assert given_out([loader], 2) == uninterrupted(50, 16)[8:]


def test_the_thread_ends_with_the_loader():
    before = set(threading.enumerate())
    loader = Loader(Bins(50), 4, seed=9)
    loader.next_batch()
    assert len(set(threading.enumerate()) - before) == 1
    del loader
    gc.collect()
    wait_until(lambda: set(threading.enumerate()) <= before)
    loader = Loader(Bins(50), 4, seed=9, prefetch=0)
    loader.next_batch()
    assert set(threading.enumerate()) <= before


PROGRAM = """
import time
from seedbed.data.loader import Loader

class Slow:
    name = fingerprint = "slow"

    def __len__(self):
        return 50

    def windows(self, indices):
        time.sleep(0.05)
        assert 42 not in indices, "an error that nobody asks for"

loader = Loader(Slow(), 25, seed=9)
loader.next_batch()
raise SystemExit(3)
"""


def test_a_process_ends_while_batches_are_made():
    assert 42 in uninterrupted(50, 50)[25:]  # made ahead, not handed out
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_position_without_an_order_goes_on_in_the_first_one():
    """States that were saved before orders had numbers: their runs keep their order to the end."""
    old = np.concatenate([sorted_draws(np.arange(20), 20, 9, epoch) for epoch in range(3)]).tolist()
    split = Bins(20)
    loader = Loader(split, 4, seed=9)
    loader.next_batch()
    wait_until(lambda: split.made == 3)  # two are ahead now, in the order of a new run
    state = loader.state()
    assert state.pop("order") == 2
    loader.restore(state)
    assert given_out([loader], 6) == old[4:28]
    again = Loader(Bins(20), 4, seed=9)
    again.restore(json.loads(json.dumps(loader.state())))
    assert given_out([again], 5) == old[28:48]
    with pytest.raises(InputError, match="order 3, this release knows up to 2"):
        loader.restore(loader.state() | {"order": 3})


@pytest.fixture(scope="module")
def split(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader") / "s"
    make_store([Text(str(i), text) for i, text in enumerate(TEXTS)], tokenizer, folder, 11)
    split = Store(folder).split("train")
    assert 7 < len(split) < 60
    return split


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_the_windows_of_the_order(split, prefetch):
    position = len(split) - 2  # across the end of an epoch
    loader = Loader(split, 5, seed=1, position=position, prefetch=prefetch)
    for batches in range(3):
        bins = uninterrupted(len(split), position + 15, seed=1)[position + 5 * batches :][:5]
        batch = loader.next_batch()
        assert all(torch.equal(got, want) for got, want in zip(batch, split.windows(bins), strict=True))
        assert batch.ids.shape == (5, 11)
    assert loader.epoch >= 1


def test_state_of_other_data_or_another_seed_is_refused(split, tokenizer, tmp_path):
    state = Loader(split, 4, seed=1, position=6).state()
    with pytest.raises(InputError, match="seed is 2, but was 1"):
        Loader(split, 4, seed=2).restore(state)
    documents = [Text(str(i), text) for i, text in enumerate(TEXTS)]
    make_store(documents[::-1], tokenizer, tmp_path / "s", 11)
    other = Store(tmp_path / "s").split("train")
    assert len(other) == len(split)  # as many bins, other content
    with pytest.raises(InputError, match="data is"):
        Loader(other, 4, seed=1).restore(state)
    with pytest.raises(InputError, match="split is 'heldout'"):
        Loader(Store(tmp_path / "s").split("heldout"), 4, seed=1).restore(state)


def test_an_empty_split_and_batches_that_cannot_be_shared_are_refused():
    with pytest.raises(InputError, match="is empty"):
        Loader(Bins(0), 4, seed=1)
    with pytest.raises(InputError, match=r"train\.batch_size=0: must be a positive multiple"):
        Loader(Bins(5), 0, seed=1)
    with pytest.raises(InputError, match=r"train\.batch_size=6: .* number of ranks, 4"):
        Loader(Bins(5), 6, seed=1, rank=3, world_size=4)
