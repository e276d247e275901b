"""Headers: every field of a wrong type, missing, or at odds with another one, is one line that names it."""

import json
import shutil
from typing import Any

import pytest
from store_edits import edit_header, recommit, refusal

from seedbed.data.store import Store
from seedbed.errors import InputError
from seedbed.files.atomic import COMMIT

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
    "libraries": [[], {"tokenizers": 1}],
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
    "groups.0.repeated_documents": [-1],
    "groups.0.repeated_tokens": [-1],
    "groups.0.heldout_documents": [-1],
    "groups.0.heldout_tokens": [-1],
    "groups.0.left_out_documents": [-1],
    "groups.0.left_out_tokens": [None],
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
    assert found - looked_at == {"records.train", "libraries.tokenizers"}


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
