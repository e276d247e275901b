"""Windows of a split: a case by hand for each packing and kind of positions, order, and damaged shards."""

import numpy as np
import pytest
import torch
from pieces import PAD, Doc, docs_of, encoded_piece, open_split, packed_store, spec_of

from seedbed.data.split import IGNORED, Split
from seedbed.errors import InputError

NO = IGNORED


def split_of(folder, docs, strategy, seq_len, position_ids="doc_reset", masked=False, shard_tokens=10**8) -> Split:
    piece = encoded_piece(folder / "piece", docs, masked)
    spec = spec_of(strategy, seq_len, masked, heldout=0.0, storage={"shard_tokens": shard_tokens})
    packed_store(folder, [piece], spec)
    return open_split(folder, "train.text", spec, position_ids)


# documents 1 2 3 | 4 5 6 7 8 9 | 10 in bins of four
BY_HAND = {
    "simple": (
        [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, PAD, PAD]],
        [[2, 3, NO, 5], [6, 7, 8, 9], [NO, NO, NO, NO]],
        [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, -1, -1]],
        [[0, 1, 2, 0], [0, 1, 2, 3], [0, 0, 0, 1]],
        [[0, 1, 2, 0], [1, 2, 3, 4], [5, 0, 0, 1]],
    ),
    "bfd": (
        [[4, 5, 6, 7], [1, 2, 3, 10]],
        [[5, 6, 7, NO], [2, 3, NO, NO]],
        [[0, 0, 0, 0], [0, 0, 0, 1]],
        [[0, 1, 2, 3], [0, 1, 2, 0]],
        [[0, 1, 2, 3], [0, 1, 2, 0]],
    ),
    "bfd_split": (
        [[4, 5, 6, 7], [1, 2, 3, 10], [8, 9, PAD, PAD]],
        [[5, 6, 7, 8], [2, 3, NO, NO], [9, NO, NO, NO]],
        [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, -1]],
        [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 0, 1]],
        [[0, 1, 2, 3], [0, 1, 2, 0], [4, 5, 0, 1]],
    ),
    "none": (
        [[1, 2, 3, PAD], [4, 5, 6, 7], [10, PAD, PAD, PAD]],
        [[2, 3, NO, NO], [5, 6, 7, NO], [NO, NO, NO, NO]],
        [[0, 0, 0, -1], [0, 0, 0, 0], [0, -1, -1, -1]],
        [[0, 1, 2, 0], [0, 1, 2, 3], [0, 0, 1, 2]],
        [[0, 1, 2, 0], [0, 1, 2, 3], [0, 0, 1, 2]],
    ),
}


@pytest.mark.parametrize("kind", ["none", "doc_reset", "continuous"])
@pytest.mark.parametrize("strategy", BY_HAND)
def test_windows_by_hand(tmp_path, strategy, kind):
    split = split_of(tmp_path, docs_of([3, 6, 1]), strategy, 4, kind)
    ids, targets, doc_ids, reset, continuous = BY_HAND[strategy]
    positions = {"none": [[0, 1, 2, 3]] * len(ids), "doc_reset": reset, "continuous": continuous}[kind]
    for got, wanted in zip(split.windows(range(len(split))), (ids, targets, doc_ids, positions), strict=True):
        assert got.dtype == torch.int64
        assert got.tolist() == wanted


def test_masked_tokens_are_read_and_not_predicted(tmp_path):
    """Also where the masked token, or the trained one behind it, stands in the next bin."""
    docs = [Doc([1, 2, 3, 4, 5, 6], [True, False, True, True, False, True]), Doc([7, 8], [False, False])]
    split = split_of(tmp_path, docs, "simple", 3, masked=True)
    batch = split.windows([0, 1, 2])
    assert batch.ids.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, PAD]]
    assert batch.targets.tolist() == [[NO, 3, 4], [NO, 6, NO], [NO, NO, NO]]
    (tmp_path / "b").mkdir()
    shifted = split_of(tmp_path / "b", docs, "simple", 4, masked=True)
    assert shifted.windows([0, 1]).targets.tolist() == [[NO, 3, 4, NO], [6, NO, NO, NO]]


def test_windows_keep_the_order_asked_for_and_refuse_others(tmp_path):
    split = split_of(tmp_path, docs_of([9, 30, 2, 17]), "simple", 4, shard_tokens=10)
    whole = split.windows(range(len(split)))
    assert len(split) == 15
    for got, everything in zip(split.windows(np.array([5, 0, 5, 14])), whole, strict=True):
        assert torch.equal(got, everything[[5, 0, 5, 14]])
    for bad in (len(split), -1):
        for read in (lambda i: split.windows([i]), split.tokens, split.segments):
            with pytest.raises(IndexError, match=f"bin {bad} of 15"):
                read(bad)
    assert [table.shape for table in split.windows([])] == [(0, 4)] * 4


def test_a_batch_can_be_written_to(tmp_path):
    """What training does to it does not reach the store."""
    split = split_of(tmp_path, docs_of([8]), "simple", 4)
    split.windows([0]).ids.zero_()
    assert split.windows([0]).ids.tolist() == [[1, 2, 3, 4]]


def test_damaged_tokens_name_the_shard(tmp_path):
    split_of(tmp_path, docs_of([40]), "simple", 4, shard_tokens=8)
    file = tmp_path / "train.text" / "00001" / "tokens.bin"
    file.write_bytes(file.read_bytes()[:-2])
    split = open_split(tmp_path, "train.text", spec_of("simple", 4))
    split.windows([0, 1, 2, 4])
    with pytest.raises(InputError, match=r"train\.text/00001: damaged: 3 tokens in a bin of 4; make the store again"):
        split.windows([3])


def test_an_index_that_is_no_whole_records_is_refused(tmp_path):
    split_of(tmp_path, docs_of([40]), "simple", 4)
    file = tmp_path / "train.text" / "00000" / "bins.bin"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"bins\.bin: damaged: \d+ bytes are no whole records; make the store again"):
        open_split(tmp_path, "train.text", spec_of("simple", 4))
