import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.packing import pack

STRATEGIES = ["simple", "bfd", "bfd_split", "none"]
SEQ_LENS = st.integers(2, 24)
LENGTHS = st.lists(st.integers(1, 60) | st.integers(1, 6), max_size=60)
FITTING = SEQ_LENS.flatmap(lambda t: st.tuples(st.lists(st.integers(1, t), max_size=60), st.just(t)))


def segments(packed):
    """The bins, each a list of (document, begin, length)."""
    rows = list(zip(packed.document.tolist(), packed.begin.tolist(), packed.length.tolist(), strict=True))
    assert packed.bins[0] == 0 and packed.bins[-1] == len(rows)
    return [rows[begin:end] for begin, end in zip(packed.bins[:-1], packed.bins[1:], strict=True)]


def tokens(packed):
    """The bins, each a list of its tokens as (document, place in it)."""
    return [[(d, i) for d, begin, length in row for i in range(begin, begin + length)] for row in segments(packed)]


def one_by_one(lengths, seq_len):
    """Documents of the bins by best fit decreasing as it is defined: every bin is looked at for every document."""
    bins = []  # [room, step at which it was filled last, documents]
    for step, document in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        fitting = [row for row in bins if row[0] >= lengths[document]]
        if not fitting:
            bins.append([seq_len, step, []])
            fitting = bins[-1:]
        fullest = min(fitting, key=lambda row: (row[0], -row[1]))
        fullest[0] -= lengths[document]
        fullest[1] = step
        fullest[2].append(document)
    return [documents for _, _, documents in bins]


@given(FITTING)
def test_best_fit_decreasing_is_the_true_one(case):
    lengths, seq_len = case
    documents = [[document for document, _, _ in row] for row in segments(pack(np.array(lengths, int), "bfd", seq_len))]
    assert documents == one_by_one(lengths, seq_len)


def test_best_fit_decreasing_of_many_lengths():
    lengths = np.random.RandomState(0).randint(1, 200, 1500)
    documents = [[document for document, _, _ in row] for row in segments(pack(lengths, "bfd", 256))]
    assert documents == one_by_one(lengths.tolist(), 256)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(LENGTHS, SEQ_LENS)
def test_every_token_once_or_counted_as_cut(strategy, lengths, seq_len):
    packed = pack(np.array(lengths, int), strategy, seq_len)
    bins = tokens(packed)
    assert all(1 <= len(row) <= seq_len for row in bins)
    assert packed.length.min(initial=1) >= 1
    kept = [min(length, seq_len) if strategy in ("bfd", "none") else length for length in lengths]
    assert sorted(token for row in bins for token in row) == [(d, i) for d, k in enumerate(kept) for i in range(k)]
    assert packed.cut_tokens == sum(lengths) - sum(kept)
    assert packed.cut_documents == sum(length > k for length, k in zip(lengths, kept, strict=True))
    assert all(array.dtype == np.int64 for array in packed[:4])


@pytest.mark.parametrize("strategy", ["simple", "bfd_split"])
@given(LENGTHS, SEQ_LENS)
def test_segments_of_a_document_are_in_the_order_of_its_tokens(strategy, lengths, seq_len):
    packed = pack(np.array(lengths, int), strategy, seq_len)
    for document, length in enumerate(lengths):
        mine = packed.document == document
        ends = packed.begin[mine] + packed.length[mine]
        assert packed.begin[mine].tolist() == [0, *ends[:-1]]
        assert ends[-1] == length
        if strategy == "bfd_split":
            assert (packed.length[mine][:-1] == seq_len).all()


@given(LENGTHS, SEQ_LENS)
def test_simple_is_windows_of_the_stream(lengths, seq_len):
    stream = [(d, i) for d, length in enumerate(lengths) for i in range(length)]
    windows = [stream[i : i + seq_len] for i in range(0, len(stream), seq_len)]
    assert tokens(pack(np.array(lengths, int), "simple", seq_len)) == windows


@given(LENGTHS, SEQ_LENS)
def test_none_is_a_bin_for_each_document(lengths, seq_len):
    expected = [[(document, 0, min(length, seq_len))] for document, length in enumerate(lengths)]
    assert segments(pack(np.array(lengths, int), "none", seq_len)) == expected


@given(FITTING)
def test_splitting_changes_nothing_where_all_documents_fit(case):
    lengths, seq_len = case
    lengths = np.array(lengths, int)
    assert segments(pack(lengths, "bfd_split", seq_len)) == segments(pack(lengths, "bfd", seq_len))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint64", ">i4"])
def test_the_dtype_of_lengths_makes_no_difference(strategy, dtype):
    lengths = np.array([250] * 300 + [3, 255, 100, 100, 7] * 40, np.int64)  # sums beyond 16 bits
    if dtype == "int16":
        lengths = lengths // 2 + 1
    ours, wide = pack(lengths.astype(dtype), strategy, 120), pack(lengths, strategy, 120)
    for narrow, array in zip(ours, wide, strict=True):
        np.testing.assert_array_equal(narrow, array)


def test_bins_are_pinned():
    """What was packed must not move between releases: a resumed run counts bins."""
    packed = pack(np.array([3, 9, 2, 2, 21, 5, 1, 4]), "bfd_split", 8)
    assert segments(packed) == [
        [(1, 0, 8)],
        [(4, 0, 8)],
        [(4, 8, 8)],
        [(4, 16, 5), (2, 0, 2), (1, 8, 1)],
        [(5, 0, 5), (0, 0, 3)],
        [(7, 0, 4), (3, 0, 2), (6, 0, 1)],
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_million_documents_of_a_token(strategy):
    packed = pack(np.ones(1_000_000, np.uint16), strategy, 2048)
    assert len(packed.bins) - 1 == (1_000_000 if strategy == "none" else 489)
    assert np.diff(packed.bins)[:-1].tolist() == [1 if strategy == "none" else 2048] * (len(packed.bins) - 2)
    assert (np.bincount(packed.document) == 1).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_document_of_a_hundred_million_tokens(strategy):
    packed = pack(np.array([10**8]), strategy, 2048)
    whole = strategy in ("simple", "bfd_split")
    assert len(packed.bins) - 1 == len(packed.length) == (48_829 if whole else 1)
    assert packed.length.sum() + packed.cut_tokens == 10**8
    assert packed.cut_documents == (0 if whole else 1)


@pytest.mark.parametrize("strategy", ["simple", "bfd", "bfd_split"])
def test_one_bin_that_takes_everything(strategy):
    packed = pack(np.array([5, 1, 5, 7]), strategy, 2**31 - 1)
    order = [0, 1, 2, 3] if strategy == "simple" else [3, 0, 2, 1]
    assert packed.document.tolist() == order and packed.bins.tolist() == [0, 4]


def test_many_lengths_and_rooms_are_no_slower():
    """A hundred thousand lengths in bins of 2^30 tokens: a scan over bins or rooms would take minutes."""
    lengths = np.random.RandomState(0).randint(1, 2**30, 100_000)
    packed = pack(lengths, "bfd", 2**30)
    assert np.add.reduceat(packed.length, packed.bins[:-1]).max() <= 2**30
    assert lengths.sum() / 2**30 / (len(packed.bins) - 1) > 0.99


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_document_without_tokens_is_refused(strategy):
    with pytest.raises(ValueError, match="document 1 has 0 tokens"):
        pack(np.array([3, 0, 2]), strategy, 8)
    with pytest.raises(TypeError):
        pack(np.array([3.5]), strategy, 8)
