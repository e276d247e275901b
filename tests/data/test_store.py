import json
import tracemalloc

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_texts import TEXTS
from tokenizers import decoders, models, pre_tokenizers

from seedbed.data.bpe import train_tokenizer
from seedbed.data.sources import Document, read_documents
from seedbed.data.split import IGNORED
from seedbed.data.store import Store, prepare
from seedbed.data.tokenizer import load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage, sha256
from seedbed.files.jsonl import ReadCounts

DOCUMENTS = [Document(f"d{i}", text) for i, text in enumerate(TEXTS * 5)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def train_documents(texts):
    return [Document(str(i), text, "train") for i, text in enumerate(texts)]


def slow_windows(streams: list[list[int]], seq_len: int, pad: int):
    """The definition, token by token: (ids, targets, doc_ids, positions), each a list of rows."""
    flat = [(token, number) for number, stream in enumerate(streams) for token in stream]
    rows = ([], [], [], [])
    for first in range(0, len(flat), seq_len):
        ids, targets, doc_ids, positions = [], [], [], []
        for place in range(first, first + seq_len):
            token, number = flat[place] if place < len(flat) else (pad, len(streams))
            goes_on = place + 1 < len(flat) and flat[place + 1][1] == number
            ids.append(token)
            targets.append(flat[place + 1][0] if goes_on else IGNORED)
            doc_ids.append(number - flat[first][1] if place < len(flat) else -1)
            positions.append(0 if doc_ids[-1] not in doc_ids[:-1] else positions[-1] + 1)
        for row, values in zip(rows, (ids, targets, doc_ids, positions), strict=True):
            row.append(values)
    return rows


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT, min_size=1, max_size=8), st.integers(2, 24), st.integers(1, 40))
def test_windows_equal_the_slow_reference(tokenizer, tmp_path, texts, seq_len, shard_tokens):
    """Whatever the bin length and wherever shards are cut: nothing lost, each token but the bos predicted once."""
    header = prepare(train_documents(texts), tokenizer, tmp_path / "s", seq_len, shard_tokens=shard_tokens)
    split = Store(tmp_path / "s").split("train")
    streams = [[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id] for text in texts]
    batch = split.windows(range(len(split)))
    for got, wanted in zip(batch, slow_windows(streams, seq_len, tokenizer.eos_id), strict=True):
        assert got.dtype == torch.int64
        assert got.tolist() == wanted
    predicted = sorted(batch.targets[batch.targets != IGNORED].tolist())
    assert predicted == sorted(token for stream in streams for token in stream[1:])
    counts = header["splits"]["train"]
    assert counts["tokens"] == sum(map(len, streams))
    assert counts["documents"] == len(texts)
    assert counts["bytes"] == sum(len(text.encode("utf-8")) for text in texts)
    assert counts["bytes"] == tokenizer.token_bytes()[predicted].sum()
    assert counts["bins"] == len(split) == -(-counts["tokens"] // seq_len)
    assert counts["padding"] == counts["bins"] * seq_len - counts["tokens"]
    ends = np.cumsum([len(stream) for stream in streams])
    starts = ends - [len(stream) for stream in streams]
    assert counts["documents_split"] == sum(starts // seq_len != (ends - 1) // seq_len)


def test_windows_keep_the_order_asked_for_and_refuse_others(tokenizer, tmp_path):
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16, shard_tokens=50)
    split = Store(tmp_path / "s").split("train")
    whole = split.windows(range(len(split)))
    some = split.windows(np.array([5, 0, 5]))
    for got, everything in zip(some, whole, strict=True):
        assert torch.equal(got, everything[[5, 0, 5]])
    for bad in (len(split), -1):
        with pytest.raises(IndexError):
            split.windows([bad])
    assert split.windows([]).ids.shape == (0, 16)


def test_header_tokenizer_and_hashes(tokenizer, tmp_path):
    counts = ReadCounts()
    counts.skipped["empty text"] = 3
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16, 0.2, counts=counts)
    store = Store(tmp_path / "s")
    header = store.header
    assert (header["format_version"], header["packing"], header["seq_len"]) == (1, "simple", 16)
    assert (header["dtype"], header["vocab_size"], header["tokenizer_hash"]) == ("uint16", 300, tokenizer.hash)
    assert header["skipped"] == {"empty text": 3}
    assert sum(part["documents"] for part in header["splits"].values()) == len(DOCUMENTS)
    assert store.tokenizer().hash == tokenizer.hash
    assert folder_damage(tmp_path / "s") is None
    store.check_tokenizer(tokenizer.hash)
    with pytest.raises(InputError, match="encoded by tokenizer"):
        store.check_tokenizer("0" * 64)


def test_shards_hold_as_many_tokens_as_asked(tokenizer, tmp_path):
    part = prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16, shard_tokens=100)["splits"]["train"]
    names, sizes = zip(*((shard["name"], shard["bytes"]) for shard in part["shards"]), strict=True)
    assert names == tuple(f"train-{i:05d}.bin" for i in range(len(names)))
    assert sizes == (200,) * (part["tokens"] // 100) + (2 * (part["tokens"] % 100),)


def test_same_documents_give_the_same_bytes(tokenizer, tmp_path):
    first = prepare(DOCUMENTS, tokenizer, tmp_path / "a", 16)
    assert prepare(iter(DOCUMENTS), tokenizer, tmp_path / "b", 16) == first
    assert prepare(DOCUMENTS[1:], tokenizer, tmp_path / "c", 16) != first


def test_tiny_corpora_hold_out_one_document(tokenizer, tmp_path):
    for count, wanted in ((1, (1, 0)), (2, (1, 1)), (3, (2, 1))):
        splits = prepare(DOCUMENTS[:count], tokenizer, tmp_path / "s", 16, 0.01)["splits"]
        assert (splits["train"]["documents"], splits["heldout"]["documents"]) == wanted
    assert prepare(DOCUMENTS[:3], tokenizer, tmp_path / "s", 16, 0)["splits"]["heldout"]["bins"] == 0
    assert len(Store(tmp_path / "s").split("heldout")) == 0


def test_no_document_is_an_error_and_leaves_nothing(tokenizer, tmp_path):
    """Case 2."""
    for documents in ([], [Document("a", "x", "heldout")]):
        with pytest.raises(InputError, match="no document"):
            prepare(documents, tokenizer, tmp_path / "s", 16)
    assert not list(tmp_path.iterdir())


def test_bad_line_at_the_end_leaves_nothing(tokenizer, tmp_path):
    """Cases 3 and 5: found while preparing, and what was there before stays."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "fine"}\n' * 30_000 + '{"text": "cut')
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    with pytest.raises(InputError, match=r"a\.jsonl:30001: "):
        prepare(read_documents([file]), tokenizer, tmp_path / "s", 16)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.jsonl", "s"]
    assert Store(tmp_path / "s").header["splits"]["train"]["documents"] < 30


@pytest.mark.parametrize("arguments", [(1, 0.1), (0, 0.1), (-1, 0.1), (16, 1.0), (16, -0.1), (16, float("nan"))])
def test_arguments_out_of_range_are_refused(tokenizer, tmp_path, arguments):
    with pytest.raises(InputError):
        prepare(DOCUMENTS, tokenizer, tmp_path / "s", *arguments)


def large_tokenizer(folder, vocab_size):
    """The byte alphabet, fillers, and bos and eos as the last two ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*alphabet, *(f"filler{i}" for i in range(vocab_size - 258))])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    backend.add_special_tokens(["<s>", "</s>"])
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    return load_tokenizer(folder)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32"), (70_000, "uint32")])
def test_storage_type_follows_the_vocabulary(tmp_path, vocab_size, dtype):
    """Case 16."""
    tokenizer = large_tokenizer(tmp_path / "t", vocab_size)
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (vocab_size, vocab_size - 1)
    header = prepare(train_documents(["ab", "c"]), tokenizer, tmp_path / "s", 4)
    assert header["dtype"] == dtype
    ids = Store(tmp_path / "s").split("train").windows([0, 1]).ids
    assert ids[0, 0] == vocab_size - 2
    assert ids[0, 3] == ids[1, 2] == vocab_size - 1


def test_id_beyond_the_vocabulary_is_refused(tokenizer, tmp_path):
    """Case 16."""
    tokenizer = load_tokenizer(tokenizer.folder)
    tokenizer.vocab_size = 200
    with pytest.raises(InputError, match="its vocabulary has 200"):
        prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    assert not (tmp_path / "s").exists()


def recommit(store, name):
    """List a changed file as if it had been written so."""
    listing = json.loads((store / COMMIT).read_text())
    listing["files"][name] = {"bytes": (store / name).stat().st_size, "sha256": sha256(store / name)}
    (store / COMMIT).write_text(json.dumps(listing))


def edit_header(store, **changes):
    header = json.loads((store / "header.json").read_text())
    (store / "header.json").write_text(json.dumps(header | changes))
    recommit(store, "header.json")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format_version": 2}, "store format 2"),
        ({"vocab_size": 70_000}, "uint16 cannot hold"),
        ({"dtype": "float32"}, "dtype: Input should be 'uint16' or 'uint32'"),
        ({"dtype": "uint32"}, "counts and shards of 'train' disagree"),
        ({"dtype": None}, "dtype: "),
        ({"seq_len": 1}, "seq_len: "),
        ({"seq_len": "16"}, "seq_len: "),
        ({"seq_len": 17}, "bins, tokens and padding of 'train' disagree"),
        ({"vocab_size": 0}, "vocab_size: "),
        ({"bos_id": 300}, "below vocab_size"),
        ({"eos_id": -1}, "eos_id: "),
        ({"packing": "best-fit"}, "packing: "),
        ({"splits": {}}, "splits.train: Field required"),
        ({"tokenizer_hash": 7}, "tokenizer_hash: "),
    ],
)
def test_header_that_does_not_fit_is_refused(tokenizer, tmp_path, changes, problem):
    """Case 16: the type is checked on read."""
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    edit_header(tmp_path / "s", **changes)
    with pytest.raises(InputError, match=problem) as caught:
        Store(tmp_path / "s")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"name": "../train-00000.bin"}, "shards.0.name: "), ({"bytes": -2}, "shards.0.bytes: "), (None, "shards: ")],
)
def test_odd_lists_of_shards_are_refused(tokenizer, tmp_path, change, problem):
    splits = prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)["splits"]
    shards = splits["train"]["shards"]
    shards[:] = [] if change is None else [shards[0] | change]
    edit_header(tmp_path / "s", splits=splits)
    with pytest.raises(InputError, match=problem):
        Store(tmp_path / "s")


@pytest.mark.parametrize("name", ["header.json", "train-docs-00000.bin", "tokenizer/tokenizer.json"])
def test_changed_small_files_are_refused_on_opening(tokenizer, tmp_path, name):
    """Of the same size, and still readable: only the hash tells."""
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    file = tmp_path / "s" / name
    raw = file.read_bytes()
    last = max(i for i, byte in enumerate(raw) if byte in b"0123456789\x00")
    file.write_bytes(raw[:last] + (b"8" if raw[last : last + 1] == b"7" else b"7") + raw[last + 1 :])
    with pytest.raises(InputError, match=f"content of {name} changed"):
        Store(tmp_path / "s")


def test_store_that_was_never_committed_is_refused(tokenizer, tmp_path):
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    (tmp_path / "s" / COMMIT).unlink()
    with pytest.raises(InputError, match=f"{COMMIT} is missing"):
        Store(tmp_path / "s")


def test_token_beyond_the_vocabulary_names_the_shard(tokenizer, tmp_path):
    """Shards are not hashed on opening; a damaged one is met where it is read."""
    prepare(train_documents(TEXTS), tokenizer, tmp_path / "s", 16, shard_tokens=50)
    file = tmp_path / "s" / "train-00001.bin"
    tokens = np.fromfile(file, dtype="<u2")
    tokens[20] = 300
    tokens.tofile(file)
    split = Store(tmp_path / "s").split("train")
    split.windows([0, 1])
    with pytest.raises(InputError, match=r"train-00001\.bin: damaged: holds 300"):
        split.windows([4])


def test_only_a_store_is_replaced(tokenizer, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine").write_text("x")
    for folder in (tmp_path / "s", tokenizer.folder):
        with pytest.raises(InputError, match=r"not a folder made here with a header\.json"):
            prepare(DOCUMENTS, tokenizer, folder, 16)
    assert (tmp_path / "s" / "mine").read_text() == "x"


@pytest.mark.parametrize("name", ["train-00001.bin", "train-docs-00000.bin", "heldout-00000.bin"])
def test_cut_or_missing_shard_is_refused(tokenizer, tmp_path, name):
    """Case 10, in part: a shard that is short by 3 bytes is not read as if it were whole."""
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16, shard_tokens=100)
    file = tmp_path / "s" / name
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match=rf"{name} has \d+ bytes instead of"):
        Store(tmp_path / "s")
    file.unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Store(tmp_path / "s")


@pytest.mark.parametrize("content", [None, "", "[]", "{}", "{"])
def test_no_store_or_a_damaged_header(tokenizer, tmp_path, content):
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    if content is None:
        (tmp_path / "s" / "header.json").unlink()
    else:
        (tmp_path / "s" / "header.json").write_text(content)
    with pytest.raises(InputError, match="no token store" if content is None else "damaged"):
        Store(tmp_path / "s")


def test_tokenizer_swapped_inside_the_store_is_refused(tokenizer, tmp_path):
    prepare(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    train_tokenizer(TEXTS, 258, tmp_path / "other").save(tmp_path / "s" / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "training.json"):
        recommit(tmp_path / "s", f"tokenizer/{name}")
    with pytest.raises(InputError, match="encoded by tokenizer"):
        Store(tmp_path / "s").tokenizer()


def test_many_short_documents_need_a_few_bytes_each(tokenizer, tmp_path):
    """Case 9, at 40,000 documents: 8 bytes each on disk, and memory that does not grow with their number."""
    early, late = [], []

    def documents():
        for i in range(40_000):
            if i % 200 == 0 and i >= 10_000:  # batches in flight come and go: the least of many samples is what stays
                (early if i < 20_000 else late if i >= 30_000 else []).append(tracemalloc.get_traced_memory()[0])
            yield Document(str(i), "word")

    tracemalloc.start()
    header = prepare(documents(), tokenizer, tmp_path / "s", 64)
    tracemalloc.stop()
    assert sum(part["documents"] for part in header["splits"].values()) == 40_000
    assert min(late) - min(early) < 8 * 20_000
    length = len(tokenizer.encode("word")) + 2
    for name, part in header["splits"].items():
        starts = np.fromfile(tmp_path / "s" / f"{name}-docs-00000.bin", dtype="<i8")
        assert np.array_equal(starts, np.arange(part["documents"]) * length)


@pytest.mark.realdata
def test_decoded_store_equals_the_texts_of_ten_domains(small_corpus, tokenizer, tmp_path):
    documents = [document._replace(split="train") for document in read_documents(small_corpus)][::5]
    prepare(documents, tokenizer, tmp_path / "s", 128, shard_tokens=100_000)
    split = Store(tmp_path / "s").split("train")
    flat = split.windows(range(len(split))).ids.flatten().numpy()
    flat = flat[: Store(tmp_path / "s").header["splits"]["train"]["tokens"]]
    starts = np.flatnonzero(flat == tokenizer.bos_id)
    for document, ids in zip(documents, np.split(flat, starts[1:]), strict=True):
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids) == document.text
