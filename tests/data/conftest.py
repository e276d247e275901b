from pathlib import Path

import pytest
from sample_texts import TEXTS

from seedbed.data.bpe import train_tokenizer
from seedbed.data.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return train_tokenizer(TEXTS * 3, 300, tmp_path_factory.mktemp("tokenizer") / "tokenizer")


@pytest.fixture(scope="session")
def small_corpus(real_data) -> list[Path]:
    return sorted((real_data / "corpus" / "small").glob("*.jsonl"))
