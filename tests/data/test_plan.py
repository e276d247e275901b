"""What each split reads: held-out documents, the mixture, counts by domain; and what a million documents cost."""

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pieces import docs_of, encoded_piece, open_split, packed_store, spec_of

from seedbed.data.layout import BIN, SEGMENT, little
from seedbed.data.plan import EncodedPiece, plan_store
from seedbed.data.steps import TABLE
from seedbed.data.write import write_shard
from seedbed.errors import InputError

GROUPS = [("code", ""), ("law", "zh"), ("web", "en"), ("web", "zh")]


def lay(folder, docs, heldout=0.0, **sections):
    """A store of ``docs`` in two pieces; its counts, and its documents by stream as runs of ids."""
    spec = spec_of("simple", 8, heldout=heldout, **sections)
    half = len(docs) // 2
    pieces = [
        encoded_piece(folder / f"p{number}", part, False, (3, 2, 1, 0))
        for number, part in enumerate((docs[:half], docs[half:]))
    ]
    facts = packed_store(folder, pieces, spec, GROUPS)
    found = {}
    for stream in facts["streams"]:
        split = open_split(folder, stream, spec, "continuous")
        batch = split.windows(range(len(split)))
        real = batch.doc_ids >= 0
        ids, positions = batch.ids[real].numpy(), batch.positions[real].numpy()
        found[stream] = [run.tolist() for run in np.split(ids, np.flatnonzero(positions == 0)[1:]) if len(run)]
    return facts, found


def test_documents_keep_the_order_of_the_input_in_both_splits(tmp_path):
    docs = [doc._replace(split=number % 3 == 1) for number, doc in enumerate(docs_of([5, 9, 1, 30, 2, 8, 3]))]
    facts, found = lay(tmp_path, docs)
    assert found["train.text"] == [doc.ids for doc in docs if not doc.split]
    assert found["heldout.text"] == [doc.ids for doc in docs if doc.split]
    assert facts["records"] == {"train": 5, "heldout": 2}
    assert np.load(tmp_path / "plan" / "heldout.records.npy").tolist() == [1, 4]


def test_undecided_documents_go_by_their_hash(tmp_path):
    def at(place: float) -> int:  # the first byte leads
        return int.from_bytes(int(place * 2**64).to_bytes(8, "big"), "little")

    places = [0.9, 0.05, 0.5, 0.05, 0.2]
    docs = [doc._replace(split=-1, hash=at(place)) for doc, place in zip(docs_of([4] * 5), places, strict=True)]
    _, found = lay(tmp_path, docs, heldout=0.1)
    assert found["heldout.text"] == [docs[1].ids, docs[3].ids]


def test_nothing_left_to_train_on_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no document is left to train on; give more, or hold out less"):
        lay(tmp_path, [doc._replace(split=1) for doc in docs_of([3, 4])])


def test_mixture_that_forbids_every_document_is_named(tmp_path):
    mixture = {"weights": {"code": 1}, "max_epochs": 0.1, "tokens": 5}
    with pytest.raises(InputError, match=r"to train on; mixture\.weights: nothing is taken of code, .*max_epochs$"):
        lay(tmp_path, docs_of([3, 4]), mixture=mixture)


def test_a_mixture_is_what_stands_in_the_shards(tmp_path):
    """Documents that are read again, a domain that is only held out; groups are a true recount."""
    groups = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    docs = [
        doc._replace(group=group, split=int(number >= 8), hash=number)
        for number, (doc, group) in enumerate(zip(docs_of([10, 3, 5, 5] * 3), groups, strict=True))
    ]
    mixture = {"weights": {"web": 3, "code": 1, "law": 0}, "tokens": 80, "max_epochs": 3.0}
    facts, found = lay(tmp_path, docs, mixture=mixture)
    web, code = [docs[i].ids for i in (2, 3, 6, 7)], [docs[0].ids, docs[4].ids]
    assert found["train.text"] == [code[0], *web[:2], code[1], *web[2:], *web, *web]  # three passes over web
    assert found["heldout.text"] == [doc.ids for doc in docs[8:]]
    shares = {share["domain"]: share for share in facts["mixture"]}
    del mixture["weights"]["law"]
    (unnamed := tmp_path / "unnamed").mkdir()
    (warning,) = lay(unnamed, docs, mixture=mixture)[0]["warnings"]
    assert warning.startswith("domain 'law' (3 documents) is not in mixture.weights and is left out")
    assert [(name, shares[name]["tokens"], shares[name]["epochs"]) for name in ("web", "code", "law")] == [
        ("web", 60, 3.0),
        ("code", 20, 1.0),
        ("law", 0, 0.0),
    ]
    assert facts["warnings"] == []
    assert facts["streams"]["train.text"]["documents"] == facts["records"]["train"] == 14
    assert facts["streams"]["train.text"]["tokens"] == 80
    train = {(g["domain"], g["lang"]): (g["documents"], g["tokens"], g["bytes"]) for g in facts["groups"]}
    assert train == {
        ("code", ""): (2, 20, 20),
        ("law", "zh"): (0, 0, 0),
        ("web", "en"): (6, 30, 30),
        ("web", "zh"): (6, 30, 30),
    }
    segments = np.fromfile(tmp_path / "train.text" / "00000" / "segments.bin", SEGMENT)
    opening = segments["group"][segments["position"] == 0]
    assert np.bincount(opening, minlength=4).tolist() == [2, 0, 6, 6]


def test_a_domain_that_the_mixture_leaves_out_is_in_neither_split(tmp_path):
    docs = [doc._replace(group=number % 4, split=int(number >= 4)) for number, doc in enumerate(docs_of([6] * 8))]
    facts, found = lay(tmp_path, docs, mixture={"weights": {"law": 1, "web": 1}})
    assert found["heldout.text"] == [doc.ids for doc in docs[5:]]
    assert docs[0].ids not in found["train.text"]
    code, _, *web = facts["groups"]
    assert (code.pop("left_out_documents"), code.pop("left_out_tokens")) == (2, 12)
    assert set(code.values()) == {"code", "", 0}
    assert [sum(group[key] for group in web) for key in ("documents", "left_out_documents")] == [1, 1]


@pytest.mark.parametrize("strategy", ["simple", "bfd", "bfd_split", "none"])
def test_shares_are_those_of_the_tokens_that_are_trained(tmp_path, strategy):
    """Domains of equal weight, one of documents far longer than a bin: what is cut off has no weight."""
    docs = [doc._replace(group=2 * (n % 2), hash=n) for n, doc in enumerate(docs_of([200, 4] * 100))]
    spec = spec_of(strategy, 8, heldout=0.0, mixture={"weights": {"code": 1, "web": 1}, "max_epochs": 1.0})
    facts = packed_store(tmp_path, [encoded_piece(tmp_path / "p", docs, False, (0, 2))], spec, GROUPS)
    shard = tmp_path / "train.text" / "00000"
    segments = np.fromfile(shard / "segments.bin", SEGMENT)
    starts = np.repeat(np.fromfile(shard / "bins.bin", BIN)["token"][:-1], segments_of(shard)) + segments["offset"]
    lengths = np.diff(starts, append=facts["streams"]["train.text"]["tokens"])
    stored = {name: int(lengths[segments["group"] == group].sum()) for name, group in (("code", 0), ("web", 2))}
    assert stored == {"code": 400, "web": 400}
    assert {share["domain"]: share["tokens"] for share in facts["mixture"]} == {**stored, "law": 0}


def segments_of(shard):
    return np.diff(np.fromfile(shard / "bins.bin", BIN)["segment"])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3), st.integers(-1, 1)), min_size=1, max_size=20),
    st.sampled_from(["simple", "bfd", "bfd_split", "none"]),
    st.dictionaries(st.sampled_from(["code", "law", "web"]), st.integers(0, 3), min_size=1) | st.none(),
    st.floats(0.2, 3),
)
def test_every_document_is_somewhere(made, strategy, weights, epochs):
    """In training, held out, or counted as left out; and so is every token, or it is cut off."""
    docs = docs_of([length for length, _, _ in made])
    docs = [
        doc._replace(group=group, split=split, hash=number << 59)
        for number, (doc, (_, group, split)) in enumerate(zip(docs, made, strict=True))
    ]
    mixture = None if weights is None else {"weights": weights, "max_epochs": epochs}
    with TemporaryDirectory() as name:
        piece = encoded_piece(Path(name) / "p", docs, False, range(4))
        try:
            facts = plan_store(Path(name), [piece], spec_of(strategy, 8, heldout=0.2, mixture=mixture), GROUPS)
        except InputError:
            return  # nothing to train on
        rows = {split: np.load(Path(name) / f"{split}.records.npy") for split in ("train", "heldout")}
    streams = [facts["streams"][f"{split}.text"] for split in ("train", "heldout")]
    assert sum(s["tokens"] + s["cut_tokens"] for s in streams) == sum(
        group["tokens"] + group["heldout_tokens"] for group in facts["groups"]
    )
    for number, group in enumerate(facts["groups"]):
        mine = [i for i, doc in enumerate(docs) if doc.group == number]
        train, heldout = ([i for i in rows[split].tolist() if i in mine] for split in ("train", "heldout"))
        left_out = set(mine) - set(train) - set(heldout)

        def tokens(documents):
            return sum(len(docs[i].ids) for i in documents)

        assert group["repeated_documents"] == len(train) - len(set(train))
        assert group["repeated_tokens"] == tokens(train) - tokens(set(train))
        assert (group["left_out_documents"], group["left_out_tokens"]) == (len(left_out), tokens(left_out))
        for unit, all_of in (("documents", len(mine)), ("tokens", tokens(mine))):
            assert all_of == (
                group[unit] - group[f"repeated_{unit}"] + group[f"heldout_{unit}"] + group[f"left_out_{unit}"]
            )


def test_as_many_groups_as_an_index_can_number_take_no_longer(tmp_path):
    """Counting is linear: a scan of all documents, or of all names, for each group would take minutes."""
    count = 60_000
    table = np.zeros(count, TABLE)
    table["group"], table["bytes"] = np.arange(count), 3
    table["hash"] = np.arange(2 * count).reshape(count, 2)
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "kept.npy", np.ones(count, bool))
    np.save(tmp_path / "text.starts.npy", np.arange(count + 1) * 3)
    np.save(tmp_path / "text.items.npy", np.arange(count + 1))
    names = [f"{number:05d}" for number in range(count)]
    spec = spec_of("simple", 64, heldout=0.0, mixture={"weights": dict.fromkeys(names[:9], 1)})
    piece = EncodedPiece(tmp_path / "table.npy", tmp_path, list(range(count)))
    began = process_time()
    facts = plan_store(tmp_path, [piece], spec, [(name, "") for name in names])
    assert process_time() - began < 10
    assert [group["tokens"] for group in facts["groups"]] == [3] * 9 + [0] * (count - 9)


def test_a_mixture_that_cannot_be_met_warns(tmp_path):
    docs = [doc._replace(group=2 * (number % 2)) for number, doc in enumerate(docs_of([6] * 4))]
    facts, _ = lay(tmp_path, docs, mixture={"weights": {"code": 1, "web": 1}, "tokens": 1000})
    assert len(facts["warnings"]) == 1
    assert facts["warnings"][0].startswith("mixture.tokens: 24 tokens of 1,000; code, web would need more")


@pytest.mark.parametrize(
    ("strategy", "count"), [("simple", 1_000_000), ("bfd", 100_000), ("bfd_split", 100_000), ("none", 100_000)]
)
def test_many_short_documents_need_a_few_bytes_each(tmp_path, strategy, count):
    """A word each. On disk the index has 18 bytes a document and 16 a bin; reading it takes no memory of its own, and
    making it some dozens of numbers a document."""
    length = 3
    table = np.zeros(count, TABLE)
    table["bytes"], table["hash"] = 4, np.arange(2 * count).reshape(count, 2)
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "kept.npy", np.ones(count, bool))
    np.full(count * length, 7, little("uint16")).tofile(tmp_path / "text.ids.bin")
    np.save(tmp_path / "text.starts.npy", np.arange(count + 1) * length)
    np.save(tmp_path / "text.items.npy", np.arange(count + 1))
    spec, piece = spec_of(strategy, 64, heldout=0.0), EncodedPiece(tmp_path / "table.npy", tmp_path, [0])
    shard = tmp_path / "train.text" / "00000"
    shard.mkdir(parents=True)
    del table
    tracemalloc.start()
    counts = plan_store(tmp_path, [piece], spec, [("", "")])["streams"]["train.text"]
    bins = counts["bins"]
    write_shard(shard, tmp_path, "train.text", 0, bins, [tmp_path], "bin", "uint16", strategy != "bfd", [])
    assert tracemalloc.get_traced_memory()[1] < 240 * count
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    split = open_split(tmp_path, "train.text", spec)
    assert int((split.windows([0, bins // 2, bins - 1]).doc_ids >= 0).sum()) > 0
    assert tracemalloc.get_traced_memory()[1] - before < 100_000
    tracemalloc.stop()
    assert counts["documents"] == count
    assert counts["tokens"] == count * length
    assert counts["segments"] <= 1.05 * count
    index = sum((shard / name).stat().st_size for name in ("bins.bin", "segments.bin"))
    assert index == 18 * counts["segments"] + 16 * (bins + 1)
