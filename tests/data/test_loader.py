import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS
from stores import Text, make_store

from seedbed.data.loader import Loader, permutation
from seedbed.data.store import Store
from seedbed.errors import InputError


@pytest.fixture(scope="module")
def split(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader") / "s"
    make_store([Text(str(i), text) for i, text in enumerate(TEXTS)], tokenizer, folder, 11)
    split = Store(folder).split("train")
    assert 7 < len(split) < 60
    return split


def order(loader, batches):
    return np.concatenate([loader.next_indices() for _ in range(batches)]).tolist()


def test_permutation_is_pinned():
    """A saved position means nothing if the order moves between releases."""
    assert permutation(10, 0, 0).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]
    assert permutation(10, 0, 1).tolist() == [5, 3, 7, 8, 2, 4, 1, 0, 6, 9]
    assert permutation(10, 5, 0).tolist() == [9, 2, 4, 3, 1, 5, 0, 6, 7, 8]


@given(st.integers(1, 50), st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_permutation_is_one(length, seed, epoch):
    assert sorted(permutation(length, seed, epoch)) == list(range(length))


def test_every_epoch_reads_every_bin_once_and_orders_differ(split):
    bins = len(split)
    samples = order(Loader(split, bins, seed=3), 3)
    epochs = [samples[i * bins : (i + 1) * bins] for i in range(3)]
    assert all(sorted(epoch) == list(range(bins)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert order(Loader(split, bins, seed=4), 1) != epochs[0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=4), st.integers(1, 40), st.integers(1, 40))
def test_resumed_order_equals_the_uninterrupted_one(split, stops, batch_size, other_size):
    """Case 38 on one rank: stopped mid-epoch, in epoch 2, several times in an epoch, and with other batch sizes."""
    samples = []
    loader = Loader(split, batch_size, seed=9)
    for number, batches in enumerate(stops):
        if batches:
            samples += order(loader, batches)
        state = json.loads(json.dumps(loader.state()))
        loader = Loader(split, other_size if number % 2 else batch_size, seed=9)
        loader.restore(state)
        assert loader.position == len(samples)
        assert loader.epoch == len(samples) // len(split)
    samples += order(loader, 2)
    assert samples == order(Loader(split, len(samples), seed=9), 1)


def test_batches_are_the_windows_of_the_order(split):
    loader = Loader(split, 5, seed=1, position=len(split) - 2)  # across the end of an epoch
    wanted = split.windows(Loader(split, 5, seed=1, position=len(split) - 2).next_indices())
    batch = loader.next_batch()
    assert all(torch.equal(got, want) for got, want in zip(batch, wanted, strict=True))
    assert batch.ids.shape == (5, 11)
    assert loader.epoch == 1


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


def test_empty_split_and_batch_size_zero_are_refused(split, tokenizer, tmp_path):
    make_store([Text("a", "x")], tokenizer, tmp_path / "s", 11)
    with pytest.raises(InputError, match="is empty"):
        Loader(Store(tmp_path / "s").split("heldout"), 4, seed=1)
    with pytest.raises(InputError, match="batch_size=0"):
        Loader(split, 0, seed=1)
