"""A tiny model with its tokenizer, not trained, whose scores differ."""

from collections.abc import Callable

import pytest

from seedbed.config import Config
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.hub.models import LanguageModel
from seedbed.init import initialize_
from seedbed.model import Decoder

LENGTH = 48


def language_model(tokenizer: Tokenizer, *overrides: str) -> LanguageModel:
    """Of LENGTH tokens; one that is greedy does not end at once, nor repeats one token."""
    shape = [f"model.vocab_size={tokenizer.vocab_size + 20}", "model.d_model=32", "model.n_layers=2"]
    module = Decoder(Config.load(None, [*shape, f"model.max_seq_len={LENGTH}", *overrides]).model)
    initialize_(module, "gamma", gamma=0.3, seed=1)
    return LanguageModel("tiny", module.eval(), tokenizer, LENGTH)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_store) -> Tokenizer:
    return load_tokenizer(tiny_store / "tokenizer")


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer) -> LanguageModel:
    return language_model(tiny_tokenizer)


@pytest.fixture(scope="session")
def make_model(tiny_tokenizer) -> Callable[..., LanguageModel]:
    return lambda *overrides: language_model(tiny_tokenizer, *overrides)
