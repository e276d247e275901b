"""Plans become shards: what is read from them is the definition in Split, and the counts are what a recount finds."""

import resource
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import VOCAB, Doc, docs_of, encoded_piece, open_split, packed_store, slow_windows, spec_of

from seedbed.data import write
from seedbed.data.layout import SEGMENT
from seedbed.data.split import IGNORED, Split

STRATEGIES = ["simple", "bfd", "bfd_split", "none"]
GROUPS = [("a", ""), ("b", "en"), ("c", "zh")]


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[Doc], bool]:
    """Documents, the first of them in training, and whether some tokens are masked."""
    lengths = draw(st.lists(st.integers(1, 16), min_size=1, max_size=8))
    masked = draw(st.booleans())
    docs = []
    for number, doc in enumerate(docs_of(lengths)):
        size = len(doc.ids)
        trained = draw(st.lists(st.booleans(), min_size=size, max_size=size)) if masked else doc.trained
        docs.append(
            doc._replace(trained=trained, group=draw(st.integers(0, 2)), split=draw(st.integers(0, number > 0)))
        )
    return docs, masked


@settings(deadline=None, max_examples=60)
@given(
    documents(),
    st.sampled_from(STRATEGIES),
    st.integers(2, 12),
    st.integers(12, 80),
    st.integers(1, 30),
    st.sampled_from(["bin", "hdf5"]),
    st.data(),
)
def test_windows_equal_the_slow_reference(given_docs, strategy, seq_len, shard_tokens, block, storage, data):
    """Whatever the length of bins and wherever pieces, shards and blocks are cut; and the counts are true."""
    docs, masked = given_docs
    storing = {"format": storage, "shard_tokens": shard_tokens}
    spec = spec_of(strategy, seq_len, masked, storage=storing, heldout=0.0)
    cuts = sorted({*data.draw(st.lists(st.integers(1, len(docs)), max_size=2), label="pieces"), len(docs)})
    with TemporaryDirectory() as name, mock.patch("seedbed.data.write.BLOCK_TOKENS", block):
        folder, pieces = Path(name), []
        for low, high in pairwise([0, *cuts]):  # each file has numbers of its own for its groups
            pieces.append(encoded_piece(folder / f"piece{high}", docs[low:high], masked, (2, 0, 1)))
        facts = packed_store(folder, pieces, spec, GROUPS)
        for side, stream in enumerate(("train.text", "heldout.text")):
            of = [doc for doc in docs if doc.split == side]
            for kind in ("none", "doc_reset", "continuous"):
                split = open_split(folder, stream, spec, kind)
                batch = split.windows(range(len(split)))
                for got, wanted in zip(batch, slow_windows(of, strategy, seq_len, kind), strict=True):
                    assert got.dtype == torch.int64
                    assert got.tolist() == wanted
            split = open_split(folder, stream, spec)
            check_counts(facts["streams"][stream], split, of, seq_len, shard_tokens)
            check_predictions(split, of, strategy)
        check_groups(facts["groups"], docs, [open_split(folder, s, spec) for s in ("train.text", "heldout.text")])


def check_counts(counts, split: Split, docs: list[Doc], seq_len: int, shard_tokens: int) -> None:
    """The counts of a stream, again from its windows and segments."""
    batch = split.windows(range(len(split)))
    segments = [split.segments(i)[0] for i in range(len(split))]
    tokens = int((batch.doc_ids >= 0).sum())
    found = {place for row in batch.ids.tolist() for place in row if place}
    parts = {i: sum(any(t in row for t in doc.ids) for row in batch.ids.tolist()) for i, doc in enumerate(docs)}
    assert counts["documents"] == len(docs)
    assert counts["bytes"] == sum(len(doc.ids) for doc in docs)  # as the table has it
    assert counts["bins"] == len(split) == sum(shard["bins"] for shard in counts["shards"])
    assert counts["tokens"] == tokens == len(found) == sum(shard["tokens"] for shard in counts["shards"])
    assert counts["segments"] == sum(map(len, segments)) == sum(shard["segments"] for shard in counts["shards"])
    assert counts["padding"] == batch.ids.numel() - tokens
    assert counts["predicted"] == int((batch.targets != IGNORED).sum())
    assert counts["bins_without_targets"] == int((batch.targets == IGNORED).all(dim=1).sum())
    assert counts["documents_split"] == sum(count > 1 for count in parts.values())
    assert counts["cut_documents"] == sum(not found.issuperset(doc.ids) for doc in docs)
    assert counts["cut_tokens"] == sum(len(doc.ids) for doc in docs) - tokens
    assert counts["cut_tokens"] == sum(int(rows["cut"].sum()) for rows in segments)
    step = max(shard_tokens // seq_len, 1)
    assert all(shard["bins"] == step for shard in counts["shards"][:-1])


def check_predictions(split: Split, docs: list[Doc], strategy: str) -> None:
    """Each token but a document's first is predicted once, unless it is masked or cut off."""
    batch = split.windows(range(len(split)))
    predicted = sorted(batch.targets[batch.targets != IGNORED].tolist())
    kept = split.seq_len if strategy in ("bfd", "none") else None
    wanted = [
        token for doc in docs for token, trained in list(zip(doc.ids, doc.trained, strict=True))[1:kept] if trained
    ]
    assert predicted == wanted


def check_groups(groups, docs: list[Doc], splits: list[Split]) -> None:
    for number, group in enumerate(groups):
        held = [doc for doc in docs if doc.group == number and doc.split == 1]
        mine = [doc for doc in docs if doc.group == number and doc.split == 0]
        assert (group["domain"], group["lang"]) == GROUPS[number]
        assert group["documents"] == len(mine)
        assert group["heldout_documents"] == len(held)
        assert group["bytes"] == sum(len(doc.ids) for doc in mine)
        for split, name in zip(splits, ("tokens", "heldout_tokens"), strict=True):
            total = 0
            for index in range(len(split)):
                segments, real = split.segments(index)
                lengths = np.diff(segments["offset"].astype(int), append=real)
                total += int((lengths + segments["cut"])[segments["group"] == number].sum())
            assert group[name] == total


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tokens_of_both_forms_are_the_same(tmp_path, strategy, masked):
    """Many blocks and pieces, ids up to the largest of the type."""
    docs = docs_of([7, 30, 1, 12, 64, 3] * 20)
    docs[-1] = docs[-1]._replace(ids=[VOCAB - 1] * 3)
    docs = [doc._replace(trained=[token % 3 > 0 for token in doc.ids]) for doc in docs]
    pieces = [encoded_piece(tmp_path / f"p{i}", docs[i::5], masked) for i in range(5)]
    splits = []
    with mock.patch("seedbed.data.write.BLOCK_TOKENS", 100):
        for form in ("bin", "hdf5"):
            spec = spec_of(strategy, 16, masked, storage={"format": form, "shard_tokens": 300}, heldout=0.0)
            (tmp_path / form).mkdir()
            packed_store(tmp_path / form, pieces, spec)
            splits.append(open_split(tmp_path / form, "train.text", spec))
    for index in range(len(splits[0])):
        flat, mapped = (split.tokens(index) for split in splits)
        assert flat.ids.tolist() == mapped.ids.tolist()
        assert (flat.trained is None) == (mapped.trained is None) == (not masked)
        if flat.trained is not None and mapped.trained is not None:
            assert flat.trained.tolist() == mapped.trained.tolist()


def test_the_files_of_a_shard(tmp_path):
    """The layout, byte by byte: a store outlives the release that wrote it."""
    piece = encoded_piece(tmp_path / "p", [Doc([5, 6, 7], [False, True, True]), Doc([8, 9], [False, True])], True)
    packed_store(tmp_path, [piece], spec_of("simple", 4, True, heldout=0.0))
    shard = tmp_path / "train.text" / "00000"
    assert sorted(file.name for file in shard.iterdir()) == ["bins.bin", "segments.bin", "tokens.bin", "trained.bin"]
    assert (shard / "tokens.bin").read_bytes() == bytes([5, 0, 6, 0, 7, 0, 8, 0, 9, 0])
    assert (shard / "trained.bin").read_bytes() == bytes([0, 1, 1, 0, 1])
    assert np.fromfile(shard / "bins.bin", "<i8").tolist() == [0, 0, 4, 2, 5, 3]
    assert SEGMENT.itemsize == 18
    # offset, position, next, cut, group
    rows = [(0, 0, -1, 0, 0), (3, 0, 9, 0, 0), (0, 1, -1, 0, 0)]
    assert (shard / "segments.bin").read_bytes() == b"".join(
        b"".join(
            value.to_bytes(size, "little", signed=value < 0) for value, size in zip(row, (4, 4, 4, 4, 2), strict=True)
        )
        for row in rows
    )


@pytest.mark.parametrize("form", ["bin", "hdf5"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_block_of_a_shard_opens_each_piece_once(tmp_path, monkeypatch, strategy, form):
    """However many bins it has: best fit takes from every piece for every bin. The index opens them once more."""
    pieces = [encoded_piece(tmp_path / f"p{i}", docs_of([7, 30, 1, 12, 64, 3] * 5), False) for i in range(5)]
    spec = spec_of(strategy, 16, storage={"format": form, "shard_tokens": 10**8}, heldout=0.0)
    opened, read = [], write._Pieces.__getitem__
    monkeypatch.setattr(write._Pieces, "__getitem__", lambda self, number: opened.append(number) or read(self, number))
    packed_store(tmp_path, pieces, spec)
    assert sorted(opened) == sorted([*range(5)] * 2)


@pytest.mark.parametrize("form", ["bin", "hdf5"])
def test_a_full_disk_is_an_error_of_the_writer(tmp_path, form):
    """Not a signal that ends the process, as where a mapped page finds no place; a limit on files stands in for it."""
    piece = encoded_piece(tmp_path / "p", docs_of([9] * 3000), False)
    spec = spec_of("bfd", 9, storage={"format": form}, heldout=0.0)
    copy, (soft, hard) = write._copy_tokens, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        copy(*arguments)

    try:
        with mock.patch("seedbed.data.write._copy_tokens", limited), pytest.raises(OSError):
            packed_store(tmp_path, [piece], spec)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("shard_tokens", "sizes"), [(1, [1] * 7), (31, [1] * 7), (32, [2, 2, 2, 1]), (10**9, [7])])
def test_shards_hold_as_many_whole_bins_as_fit_one_at_least(tmp_path, shard_tokens, sizes):
    piece = encoded_piece(tmp_path / "p", docs_of([100]), False)
    spec = spec_of("simple", 16, storage={"shard_tokens": shard_tokens}, heldout=0.0)
    facts = packed_store(tmp_path, [piece], spec)
    assert [shard["bins"] for shard in facts["streams"]["train.text"]["shards"]] == sizes
    assert facts["streams"]["heldout.text"]["shards"] == []
