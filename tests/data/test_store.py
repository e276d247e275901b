"""Stores made by the whole pipeline: true counts, refusals, and texts that come back as they went in."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tokenizers
from sample_texts import TEXTS
from stores import Text, make_store
from tokenizers import decoders, models, pre_tokenizers

from seedbed.data.bpe import train_tokenizer
from seedbed.data.document import SplitName
from seedbed.data.prepare import prepare
from seedbed.data.spec import spec_from
from seedbed.data.split import IGNORED
from seedbed.data.store import SPLITS, Store
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT, folder_damage, listed, sha256

DOCUMENTS = [Text(f"d{i}", text) for i, text in enumerate(TEXTS * 5)]


@pytest.fixture(scope="module", autouse=True)
def nothing_is_flushed():
    with mock.patch("seedbed.files.atomic.sync"), mock.patch("seedbed.data.prepare.sync"):
        yield


@pytest.fixture(scope="module")
def made(tokenizer, tmp_path_factory) -> dict[str, Path]:
    """A store in each form, of several shards; tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("made")
    for form in ("bin", "hdf5", "jsonl"):
        storage = {"format": form, "shard_tokens": 100}
        make_store(DOCUMENTS, tokenizer, folder / form, 16, 0.2, storage=storage)
    return {form: folder / form for form in ("bin", "hdf5", "jsonl")}


@pytest.fixture
def store(made, tmp_path) -> Path:
    return shutil.copytree(made["bin"], tmp_path / "s")


def recommit(store: Path, name: str) -> None:
    """List a changed file as if it had been written so."""
    listing = json.loads((store / COMMIT).read_text())
    listing["files"][name] = {"bytes": (store / name).stat().st_size, "sha256": sha256(store / name)}
    (store / COMMIT).write_text(json.dumps(listing))


def edit_header(store: Path, path: str, value: Any) -> None:
    """Set the field at ``path``, or remove it where the value is ...; the header is then listed as it is."""
    header = json.loads((store / "header.json").read_text())
    *above, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    place = header
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    (store / "header.json").write_text(json.dumps(header))
    recommit(store, "header.json")


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


# what decides a batch


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
    assert of("b", dedup={"alarm": 0.9}) == (plain, tokens)
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


# types


def large_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
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


@pytest.mark.parametrize(
    ("vocab_size", "dtype", "forms"),
    [(65_536, "uint16", ["bin"]), (65_537, "uint32", ["bin"]), (70_000, "uint32", ["bin", "hdf5", "jsonl"])],
)
def test_storage_type_follows_the_vocabulary(tmp_path, vocab_size, dtype, forms):
    """The last id is written and comes back, also as the target in another bin."""
    tokenizer = large_tokenizer(tmp_path / "t", vocab_size)
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (vocab_size, vocab_size - 1)
    texts = [Text("0", "ab", "train"), Text("1", "cde", "train")]
    for form in forms:
        header = make_store(texts, tokenizer, tmp_path / form, 4, storage={"format": form})
        assert header["dtype"] == dtype
        batch = Store(tmp_path / form).split("train").windows([0, 1, 2])
        assert batch.ids[0, 0] == vocab_size - 2
        assert batch.ids[0, 3] == batch.targets[0, 2] == vocab_size - 1
        assert batch.ids[2, 0] == batch.targets[1, 3] == vocab_size - 1


def test_id_beyond_the_vocabulary_is_refused(tokenizer, tmp_path):
    def smaller(folder: Path) -> Tokenizer:
        found = load_tokenizer(folder)
        found.vocab_size = 200
        return found

    with (
        mock.patch("seedbed.data.steps.load_tokenizer", smaller),
        pytest.raises(InputError, match=r"gives id \d+, but its vocabulary has 200"),
    ):
        make_store(DOCUMENTS, tokenizer, tmp_path / "s", 16)
    with pytest.raises(InputError):
        Store(tmp_path / "s")


def test_token_beyond_the_vocabulary_names_the_shard(store):
    """Tokens are not hashed on opening; damage is met where it is read, and by inspection."""
    file = store / "train" / "00001" / "tokens.bin"
    tokens = np.fromfile(file, dtype="<u2")
    tokens[20] = 300
    tokens.tofile(file)
    split = Store(store).split("train")
    split.windows(range(7))
    with pytest.raises(InputError, match=r"train/00001: damaged: holds 300, where every id is below 300; make the"):
        split.windows([7])
    assert folder_damage(store) == "the content of train/00001/tokens.bin changed (SHA-256 differs)"


# headers that do not fit

WRONG_TYPES: dict[str, list[Any]] = {
    "packing": ["best-fit", None, 1],
    "seq_len": [1, "16", 16.0, None],
    "position_ids": ["reset", None],
    "storage": ["parquet", None],
    "dtype": ["float32", "int16", None],
    "vocab_size": [0, -1, "300", 300.0],
    "padded_vocab_size": [0, "300"],
    "bos_id": [-1, "0", 0.5],
    "eos_id": [-1, None, "0"],
    "tokenizer_hash": [7, "", "g" * 64, "0" * 63],
    "lossless": ["yes", 1],
    "spec": [[], None],
    "spec_hash": ["", None],
    "records": [[], {"train": 1, "test": 2}, {"train": -1, "heldout": 2}],
    "streams": [[], {"test": {}}, {"train/../x": {}}, {"train": {}}],
    "streams.train.documents": [-1, "1", 1.5],
    "streams.train.bytes": [-1],
    "streams.train.bins": [-1],
    "streams.train.segments": [-1],
    "streams.train.documents_split": [-1],
    "streams.train.tokens": [-1],
    "streams.train.predicted": [-1, None],
    "streams.train.bins_without_targets": [-1],
    "streams.train.padding": [-1],
    "streams.train.cut_documents": [-1],
    "streams.train.cut_tokens": [-1],
    "streams.train.shards": [None, {}],
    "streams.train.shards.0.name": ["../00000", "train", "0", 0],
    "streams.train.shards.0.bins": [-1],
    "streams.train.shards.0.segments": [-1],
    "streams.train.shards.0.tokens": ["1"],
    "streams.train.shards.0.sha256": ["0", None],
    "numbers": [None, [1]],
    "groups": [None, [{}]],
    "groups.0.domain": [None],
    "groups.0.lang": [1],
    "groups.0.documents": [-1],
    "groups.0.tokens": [-1],
    "groups.0.bytes": [-1],
    "groups.0.heldout_documents": [-1],
    "groups.0.heldout_tokens": [-1],
    "mixture": [None, [1]],
    "skipped": [[], {"a": "b"}],
    "repaired": [None],
    "duplicates": [{"exact": None}],
    "warnings": [None, [1]],
}


def test_every_field_of_a_header_is_looked_at(store):
    header = json.loads((store / "header.json").read_text())

    def paths(value: Any, path: str) -> list[str]:
        if path in ("spec", "format_version") or not isinstance(value, dict | list):
            return [path]
        items = value.items() if isinstance(value, dict) else enumerate(value[:1])
        return [path, *(each for key, item in items for each in paths(item, f"{path}.{key}".lstrip(".")))]

    looked_at = set(WRONG_TYPES) | {"", "format_version", "streams.train", "streams.train.shards.0", "groups.0"}
    found = {path for path in paths(header, "") if "heldout" not in path.split(".")[:2]}
    assert found - looked_at == {"records.train"}


@pytest.mark.parametrize("path", WRONG_TYPES)
def test_a_field_of_a_wrong_type_is_refused_by_name(made, tmp_path, path):
    """And one that is missing."""
    whole = (made["bin"] / "header.json").read_bytes()
    files = (made["bin"] / COMMIT).read_bytes()
    store = shutil.copytree(made["bin"], tmp_path / "s")
    for value in [*WRONG_TYPES[path], ...]:
        edit_header(store, path, value)
        with pytest.raises(InputError) as caught:
            Store(store)
        assert f"header.json: {path}" in str(caught.value)
        assert str(caught.value).endswith("; make the store again with `seedbed data prepare`")
        assert "\n" not in str(caught.value)
        (store / "header.json").write_bytes(whole)
        (store / COMMIT).write_bytes(files)
    edit_header(store, f"{path.rpartition('.')[0]}.extra".lstrip("."), 1)
    with pytest.raises(InputError, match="extra: Extra inputs are not permitted|extra: Input should be"):
        Store(store)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("format_version", 1, "store format 1, this release reads 2; make the store again with `seedbed data prepare`"),
        ("format_version", 3, "store format 3, this release reads 2"),
        ("format_version", None, "store format None"),
        ("format_version", ..., r"header\.json: damaged"),
        ("vocab_size", 70_000, "padded_vocab_size is below vocab_size, 70000"),
        ("vocab_size", 1, "bos_id and eos_id must be below vocab_size, 1"),
        ("padded_vocab_size", 299, "padded_vocab_size is below vocab_size, 300"),
        ("dtype", "uint8", "dtype: Input should be 'uint16' or 'uint32'"),
        ("seq_len", 17, "bins, tokens and padding of 'train' disagree"),
        ("bos_id", 300, "bos_id and eos_id must be below vocab_size, 300"),
        ("eos_id", 300, "bos_id and eos_id must be below vocab_size, 300"),
        ("streams", {}, "streams and records must be those of train and heldout"),
        ("streams.heldout", ..., "streams and records must be those of train and heldout"),
        ("records.heldout", ..., "streams and records must be those of train and heldout"),
        ("records.train", "1", "records"),
        ("streams.train.bins", 3, "bins and shards of 'train' disagree"),
        ("streams.train.segments", 3, "segments and shards of 'train' disagree"),
        ("streams.train.tokens", 3, "tokens and shards of 'train' disagree"),
        ("streams.train.padding", 16, "bins, tokens and padding of 'train' disagree"),
        ("streams.train.predicted", 10**6, "predicted, tokens and bins of 'train' disagree"),
        ("streams.train.bins_without_targets", 10**6, "predicted, tokens and bins of 'train' disagree"),
        ("streams.train.shards", [], "bins and shards of 'train' disagree"),
        ("streams.train.shards.0.name", "00001", "shards of 'train' are not numbered from 0"),
        ("streams.train.shards.0.sha256", "0" * 64, "train/00000: not the shard that header.json lists"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(store, path, value, problem):
    edit_header(store, path, value)
    with pytest.raises(InputError, match=problem) as caught:
        Store(store)
    assert str(caught.value).startswith(str(store))
    assert "\n" not in str(caught.value)


def test_a_vocabulary_beyond_the_type_is_refused(store):
    edit_header(store, "padded_vocab_size", 70_016)
    edit_header(store, "vocab_size", 70_000)
    assert "uint16 cannot hold a vocabulary of 70000" in refusal(store)


@pytest.mark.parametrize(("key", "change"), [("bins", 1), ("segments", 1), ("tokens", -1)])
def test_counts_that_the_shards_do_not_have_are_refused(store, key, change):
    """Counted alike in header and list of shards, but not in the files."""
    header = json.loads((store / "header.json").read_text())
    stream = header["streams"]["train"]
    stream[key] += change
    stream["shards"][0][key] += change
    stream["padding"] = stream["bins"] * 16 - stream["tokens"]
    (store / "header.json").write_text(json.dumps(header))
    recommit(store, "header.json")
    with pytest.raises(InputError, match=r"train/00000: header\.json counts other bins, segments or tokens"):
        Store(store)


# damage


def one_digit_other(file: Path) -> None:
    """Of the same size, and often still readable: only the hash tells."""
    raw = file.read_bytes()
    last = max((i for i, byte in enumerate(raw) if byte in b"0123456789\x00"), default=len(raw) - 1)
    file.write_bytes(raw[:last] + bytes([raw[last] ^ 1]) + raw[last + 1 :])


PAYLOAD = ("tokens.bin", "trained.bin", "tokens.h5", "documents.jsonl")


@pytest.mark.parametrize("form", ["bin", "hdf5", "jsonl"])
def test_every_file_cut_missing_or_changed_is_noticed(made, tmp_path, form):
    """On opening; tokens and texts that are changed but as long as before, by inspection."""
    names = [*listed(made[form])]
    assert len(names) > 20
    store = shutil.copytree(made[form], tmp_path / "s")
    for name in names:
        file, whole = store / name, (store / name).read_bytes()
        if not whole:
            continue
        file.write_bytes(whole[:-3])
        problem = refusal(store)
        assert f"{name} has" in problem or f"{name}: damaged" in problem or name == "header.json"
        file.unlink()
        problem = refusal(store)
        assert f"{name} is missing" in problem or name == "header.json"
        file.write_bytes(whole)
        one_digit_other(file)
        damage = folder_damage(store)
        assert damage is not None
        assert name in damage
        if not name.endswith(PAYLOAD):
            assert f"the content of {name} changed" in refusal(store)
        file.write_bytes(whole)
    Store(store)


def refusal(store: Path) -> str:
    with pytest.raises(InputError) as caught:
        Store(store)
    assert str(caught.value).startswith(str(store))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_store_that_was_never_committed_is_refused(store):
    (store / COMMIT).unlink()
    assert f"{COMMIT} is missing" in refusal(store)
    (store / COMMIT).write_text("{")
    assert f"{COMMIT} is damaged" in refusal(store)


def test_a_store_in_the_making_is_none(store):
    (store / "header.json").unlink()
    assert "not finished; run the same `seedbed data prepare` again" in refusal(store)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", "\x00", "null", "[" * 100_000])
def test_a_damaged_header_is_refused(store, content):
    (store / "header.json").write_text(content)
    assert "header.json: damaged; make the store again" in refusal(store)


def test_no_store(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        assert "no token store there; make one with `seedbed data prepare`" in refusal(path)


@pytest.mark.parametrize("form", ["bin", "hdf5", "jsonl"])
def test_tokenizer_swapped_inside_the_store_is_refused(made, tmp_path, form):
    """Listed as if it belonged there; texts are refused at once, since they would be encoded by it."""
    store = shutil.copytree(made[form], tmp_path / "s")
    train_tokenizer(TEXTS, 258, tmp_path / "other").save(store / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "training.json"):
        recommit(store, f"tokenizer/{name}")
    with pytest.raises(InputError, match="encoded by tokenizer"):
        Store(store).tokenizer()
    if form == "jsonl":
        assert "encoded by tokenizer" in refusal(store)


# mixtures, and real text


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
    (warning,) = header["warnings"]
    assert "mixture.tokens" in warning
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
