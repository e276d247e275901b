"""Stores made by the whole pipeline: true counts, refusals, and texts that come back as they went in."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from pieces import Doc, slow_windows
from sample_texts import TEXTS
from stores import Text, make_store

from seedbed.data.document import SplitName
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.split import IGNORED
from seedbed.data.store import SPLITS, Store
from seedbed.errors import InputError
from seedbed.files.atomic import folder_damage, listed

pytestmark = pytest.mark.usefixtures("no_flush")
DOCUMENTS = [Text(f"d{i}", text) for i, text in enumerate(TEXTS * 5)]


def documents_of(path: Path, name: SplitName) -> list[list[int]]:
    """The documents of a split packed simple, put together from the segments of all its bins."""
    split = Store(path).split(name)
    documents: list[list[int]] = []
    for index in range(len(split)):
        segments, real = split.segments(index)
        ids = split.tokens(index).ids.tolist()
        for begin, end, place in zip(
            segments["offset"], [*segments["offset"][1:], real], segments["position"], strict=True
        ):
            if place == 0:
                documents.append([])
            assert len(documents[-1]) == place
            documents[-1] += ids[begin:end]
    return documents


def test_header_tokenizer_and_hashes(made, tokenizer):
    for form, path in made.items():
        store = Store(path)
        header = store.header
        assert (header["format_version"], header["packing"], header["seq_len"]) == (2, "simple", 16)
        assert (header["dtype"], header["vocab_size"], header["tokenizer_hash"]) == ("uint16", 300, tokenizer.hash)
        assert (header["storage"], header["position_ids"], header["lossless"]) == (form, "doc_reset", True)
        assert header["spec"]["storage"]["format"] == form
        assert sum(header["records"].values()) == len(DOCUMENTS)
        assert store.tokenizer().hash == tokenizer.hash
        assert folder_damage(path) is None
        store.check_tokenizer(tokenizer.hash)
        with pytest.raises(InputError, match="encoded by tokenizer"):
            store.check_tokenizer("0" * 64)


def test_counts_are_what_a_recount_finds(made, tokenizer):
    sizes = tokenizer.token_bytes()
    for path in made.values():
        store = Store(path)
        for side in SPLITS:
            counts, split = store.header["streams"][side], store.split(side)
            documents = documents_of(path, side)
            batch = split.windows(range(len(split)))
            predicted = batch.targets[batch.targets != IGNORED]
            assert counts["documents"] == store.header["records"][side] == len(documents) > 0
            assert counts["tokens"] == sum(map(len, documents))
            assert counts["predicted"] == len(predicted) == counts["tokens"] - len(documents)
            assert counts["bytes"] == sum(len(tokenizer.decode(ids).encode("utf-8")) for ids in documents)
            assert counts["bytes"] == sizes[predicted.numpy()].sum()
            assert counts["bins"] == len(split) == -(-counts["tokens"] // 16)
            assert counts["padding"] == counts["bins"] * 16 - counts["tokens"]
            assert counts["cut_documents"] == counts["cut_tokens"] == 0
            ends = np.cumsum([len(document) for document in documents])
            starts = ends - [len(document) for document in documents]
            assert counts["documents_split"] == sum(starts // 16 != (ends - 1) // 16)
            assert len(counts["shards"]) == -(-counts["bins"] // 6)  # 100 tokens hold six bins


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [("simple", "none"), ("bfd", "doc_reset"), ("bfd_split", "continuous"), ("none", "continuous")],
)
def test_windows_are_those_of_the_definition(tokenizer, tmp_path, strategy, kind):
    """From text to batches, as `test_write.py` shows without text."""
    texts = [document._replace(split="train") for document in DOCUMENTS[:9]]
    packing = {"strategy": strategy, "position_ids": kind}
    header = make_store(texts, tokenizer, tmp_path / "s", 30, packing=packing, storage={"shard_tokens": 100})
    streams = [[tokenizer.bos_id, *tokenizer.encode(text.text), tokenizer.eos_id] for text in texts]
    docs = [Doc(ids, [True] * len(ids)) for ids in streams]
    split = Store(tmp_path / "s").split("train")
    tables = slow_windows(docs, strategy, 30, kind, pad=tokenizer.eos_id)
    for got, wanted in zip(split.windows(range(len(split))), tables, strict=True):
        assert got.tolist() == wanted
    stream = header["streams"]["train"]
    assert stream["tokens"] + stream["cut_tokens"] == sum(map(len, streams))
    assert (stream["cut_tokens"] > 0) == (strategy in ("bfd", "none"))


def test_same_documents_give_the_same_bytes(made, tokenizer, tmp_path):
    """Wherever the store is, for every form; other documents give other bytes."""
    for form, path in made.items():
        file = path.with_name(f"{form}.jsonl")
        again = prepare(
            spec_from(json.loads((path / "header.json").read_text())["spec"], "test"), tmp_path / form, workers=1
        )
        assert again == Store(path).header
        assert listed(tmp_path / form) == listed(path)
        assert file.is_file()
    make_store(DOCUMENTS[1:], tokenizer, tmp_path / "other", 16, 0.2)
    assert Store(tmp_path / "other").split("train").fingerprint != Store(made["bin"]).split("train").fingerprint


def test_tiny_corpora_hold_out_one_document(tokenizer, tmp_path):
    for count, wanted in ((1, (1, 0)), (2, (1, 1)), (3, (2, 1))):
        records = make_store(DOCUMENTS[:count], tokenizer, tmp_path / "s", 16, 0.01)["records"]
        assert (records["train"], records["heldout"]) == wanted
    assert make_store(DOCUMENTS[:3], tokenizer, tmp_path / "s", 16, 0)["streams"]["heldout"]["bins"] == 0
    assert len(Store(tmp_path / "s").split("heldout")) == 0


def test_a_store_without_documents_is_none(tokenizer, tmp_path):
    for documents, problem in ([], r"s\.jsonl: no document"), ([Text("a", "x", "heldout")], "left to train on"):
        with pytest.raises(InputError, match=problem):
            make_store(documents, tokenizer, tmp_path / "s", 16)
        with pytest.raises(InputError):
            Store(tmp_path / "s")


def test_the_fingerprint_is_of_all_that_decides_a_batch_and_of_nothing_else(tokenizer, tmp_path):
    """So that a run is never resumed on other batches, and is on the same ones wherever they were made."""

    def of(folder: str, packing=(), seq_len=16, **spec):
        (tmp_path / folder).mkdir(exist_ok=True)
        place = tmp_path / folder / "s"
        make_store(DOCUMENTS, tokenizer, place, seq_len, 0.0, packing=dict(packing), **spec)
        split = Store(place).split("train")
        return split.fingerprint, split.token_fingerprint

    plain, tokens = of("a")
    assert of("b") == (plain, tokens)  # another place, and so other names and times of files
    assert of("b", dedup={"exact": True, "alarm": 0.9}) == of("b", dedup={"exact": True})
    others = [
        of("a", {"position_ids": "none"}),
        of("a", {"position_ids": "continuous"}),
        of("a", {"strategy": "bfd"}),
        of("a", {"strategy": "bfd_split"}),
        of("a", seq_len=17),
        of("a", storage={"shard_tokens": 100}),
        of("a", sections=[{"field": "id", "action": "mask"}, {"field": "text"}]),
    ]
    prints = {plain, *(fingerprint for fingerprint, _ in others)}
    assert len(prints) == 1 + len(others)
    # every document fills a bin of 16, so these two pack alike; a wider bin has the same tokens, and more padding
    assert of("a", {"strategy": "none"})[0] == others[2][0]
    narrow, wide = (of("a", {"strategy": "none"}, seq_len=seq_len) for seq_len in (200, 201))
    assert narrow[0] != wide[0]
    # format 1 packed and trained in one way: its positions fit no other store
    assert {print_ for _, print_ in others[:4]} == {""}
    assert others[6][1] == ""


def test_the_fingerprint_of_format_1(tokenizer, tmp_path):
    """The hash of the hashes of its flat shards; runs on such a store go on where the tokens are the same."""
    documents = [document._replace(split="train") for document in DOCUMENTS]
    make_store(documents, tokenizer, tmp_path / "s", 16)
    ids = [[tokenizer.bos_id, *tokenizer.encode(document.text), tokenizer.eos_id] for document in documents]
    shard = hashlib.sha256(np.array([i for run in ids for i in run], "<u2").tobytes()).hexdigest()
    assert Store(tmp_path / "s").split("train").token_fingerprint == hashlib.sha256(shard.encode()).hexdigest()


def test_a_mixture_through_the_whole_pipeline(tokenizer, tmp_path):
    """Header, shards and groups say the same; a domain left out is in neither split."""
    rows = [
        {
            "text": f"{domain} {i} {TEXTS[i % 4]}",
            "domain": domain,
            "lang": lang,
            "split": "heldout" if i > 8 else "train",
        }
        for i in range(12)
        for domain, lang in (("a", "en"), ("b", "zh"), ("c", "en"))
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tree = {
        "sources": [{"path": str(tmp_path / "in.jsonl"), "split_field": "split"}],
        "tokenizer": str(tokenizer.folder),
        "mixture": {"weights": {"a": 3, "b": 1}, "tokens": 2000, "max_epochs": 2},
        "packing": {"strategy": "bfd_split", "seq_len": 32},
        "storage": {"shard_tokens": 320},
    }
    header = prepare(spec_from(tree, "test"), tmp_path / "s", workers=1)
    unnamed, short = sorted(header["warnings"], key=lambda line: "mixture.tokens" in line)
    assert "'c'" in unnamed
    assert "mixture.tokens" in short
    assert [share["domain"] for share in header["mixture"]] == ["a", "b", "c"]
    names = [(group["domain"], group["lang"]) for group in header["groups"]]
    assert names == [("a", "en"), ("b", "zh"), ("c", "en")]
    store = Store(tmp_path / "s")
    for side in SPLITS:
        prefix = "" if side == "train" else "heldout_"
        split, texts = store.split(side), {}
        for index in range(len(split)):
            segments, real = split.segments(index)
            ids = split.tokens(index).ids.tolist()
            ends = [*segments["offset"][1:].tolist(), real]
            for segment, end in zip(segments, ends, strict=True):
                texts.setdefault(int(segment["group"]), []).append(ids[segment["offset"] : end])
        assert sorted(texts) == [0, 1]
        for number, group in enumerate(header["groups"]):
            runs = texts.get(number, [])
            assert group[f"{prefix}tokens"] == sum(map(len, runs))
            openings = [tokenizer.decode(run) for run in runs if run[0] == tokenizer.bos_id]
            assert group[f"{prefix}documents"] == len(openings)
            assert all(text.startswith(group["domain"]) for text in openings)
    for share, group in zip(header["mixture"], header["groups"], strict=True):
        assert (share["tokens"], share["documents"]) == (group["tokens"], group["documents"])
        assert share["epochs"] <= 2
    assert header["mixture"][0]["epochs"] == 2
    assert sum(share["tokens"] for share in header["mixture"]) == header["streams"]["train"]["tokens"] < 2000


def test_more_domains_than_the_index_can_number_are_refused(tokenizer, tmp_path):
    """A key that names every document, say."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "word", "domain": str(i)}) + "\n" for i in range(9)))
    spec = spec_from({"sources": [str(tmp_path / "in.jsonl")], "tokenizer": str(tokenizer.folder)}, "test")
    with (
        mock.patch("seedbed.data.reading.GROUPS", 8),
        pytest.raises(InputError, match="9 different pairs of domain and language, 8 at most; set domain"),
    ):
        prepare(spec, tmp_path / "s", workers=1)
    with mock.patch("seedbed.data.reading.GROUPS", 9):
        assert len(prepare(spec, tmp_path / "s", workers=1)["groups"]) == 9


@pytest.mark.realdata
@pytest.mark.parametrize("form", ["bin", "hdf5", "jsonl"])
def test_decoded_store_equals_the_texts_of_ten_domains(small_corpus, tokenizer, tmp_path, form):
    rows = [json.loads(line) for file in small_corpus for line in file.read_text(encoding="utf-8").splitlines()][::12]
    assert len({row["domain"] for row in rows}) == 10
    texts = [Text(str(i), row["text"], "train") for i, row in enumerate(rows)]
    header = make_store(texts, tokenizer, tmp_path / "s", 128, storage={"format": form, "shard_tokens": 100_000})
    stream = header["streams"]["train"]
    assert len(stream["shards"]) > 2
    assert stream["bytes"] == sum(len(text.text.encode("utf-8")) for text in texts)
    for text, ids in zip(texts, documents_of(tmp_path / "s", "train"), strict=True):
        assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
        assert tokenizer.decode(ids) == text.text
        assert tokenizer.token_bytes()[ids].sum() == len(text.text.encode("utf-8"))


def test_a_store_of_more_shards_than_a_process_may_have_files_open(tokenizer, tmp_path):
    """A mapped file stays open: the limit is raised, or named where the system does not allow that."""
    texts = [Text(str(number), "words " * 20, "train") for number in range(20)]
    make_store(texts, tokenizer, tmp_path / "s", 16, storage={"format": "bin", "shard_tokens": 16})
    code = (
        "import resource, sys; from seedbed.data.store import Store; from seedbed.errors import InputError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[2:])))\n"
        "try: print(len(Store(sys.argv[1]).split('train')))\n"
        "except InputError as error: print(error)"
    )

    def opened(soft: int, hard: int) -> str:
        arguments = [sys.executable, "-c", code, str(tmp_path / "s"), str(soft), str(hard)]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout

    shards = len(Store(tmp_path / "s").header["streams"]["train"]["shards"])
    assert shards > 50
    assert opened(64, 4096) == f"{shards}\n"
    assert "the system allows 64; raise that (ulimit -Hn)" in opened(64, 64)
