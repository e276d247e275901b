import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
from chat_templates import chat_tokenizer
from prepared import write_corpus
from reading import read
from sample_texts import TEXTS
from stores import Text, make_store

from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train_tokenizer(TEXTS * 3, 300, tmp_path_factory.mktemp("tokenizer") / "tokenizer")


@pytest.fixture(scope="session")
def chat_tok(tokenizer, tmp_path_factory) -> Tokenizer:
    """One with the control tokens of a chat."""
    return chat_tokenizer(tokenizer, tmp_path_factory.mktemp("chat") / "tokenizer")


@pytest.fixture(scope="module")
def mixed_corpus(tmp_path_factory) -> Path:
    """A corpus with everything in it that a store leaves out."""
    folder = tmp_path_factory.mktemp("mixed") / "corpus"
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def small_corpus(real_data) -> list[Path]:
    return sorted((real_data / "corpus" / "small").glob("*.jsonl"))


@pytest.fixture(scope="module")
def no_flush():
    """Nothing is flushed to the disk, so that making a store takes some hundredths of a second."""
    with mock.patch("os.fsync"):
        yield


@pytest.fixture(scope="session")
def made(tokenizer, tmp_path_factory) -> dict[str, Path]:
    """A store in each form, of several shards; tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("made")
    texts = [Text(f"d{i}", text) for i, text in enumerate(TEXTS * 5)]
    for form in ("bin", "hdf5", "jsonl"):
        make_store(texts, tokenizer, folder / form, 16, 0.2, storage={"format": form, "shard_tokens": 100})
    return {form: folder / form for form in ("bin", "hdf5", "jsonl")}


@pytest.fixture
def store(made, tmp_path) -> Path:
    """A copy of the flat one."""
    return shutil.copytree(made["bin"], tmp_path / "s")


@pytest.fixture
def read_records(tmp_path):
    """Writes records and reads them as documents."""

    def make(*records, counts=None, source=None, **fields):
        path = tmp_path / "web.1.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return read(path, counts, source, **fields)

    return make
