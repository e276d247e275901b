"""A vocabulary padded to a multiple: the model takes the padded size, and never writes an id of no token."""

import warnings

import pytest
from stores import Text, make_store
from tiny import config, sentences

from seedbed.api import Trained, generate
from seedbed.data.bpe import train_tokenizer
from seedbed.data.store import Store
from seedbed.hub.models import LanguageModel
from seedbed.train.setup import initial_model, resolve


@pytest.fixture(scope="module")
def padded_store(tmp_path_factory):
    """A store whose tokenizer has 300 tokens and was trained with --pad-to 64."""
    folder = tmp_path_factory.mktemp("padded")
    texts = sentences(60, seed=0)
    tokenizer = train_tokenizer(texts, 300, folder / "tokenizer", pad_to=64)
    make_store([Text(str(i), text) for i, text in enumerate(texts)], tokenizer, folder / "store", seq_len=32)
    return folder / "store"


@pytest.mark.parametrize(
    ("overrides", "size"), [([], 320), (["model.vocab_size=320"], 320), (["model.vocab_size=300"], 300)]
)
def test_the_model_takes_the_padded_size_unless_told(padded_store, tmp_path, overrides, size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolved, store = resolve(config(padded_store, tmp_path / "r", *overrides))
    assert resolved.model.vocab_size == size
    assert store.header["vocab_size"] == 300


def test_a_size_of_ones_own_is_warned_about(padded_store, tmp_path):
    with pytest.warns(UserWarning, match=r"model\.vocab_size=330: the last 30 ids never occur"):
        resolve(config(padded_store, tmp_path / "r", "model.vocab_size=330"))


def test_only_ids_of_tokens_are_written(padded_store, tmp_path):
    resolved, _ = resolve(config(padded_store, tmp_path / "r"))
    model = LanguageModel("m", initial_model(resolved)[0].eval(), Store(padded_store).tokenizer(), 32)
    answers = generate(model, [""] * 30, max_new_tokens=31, temperature=1e6)  # nearly uniform: of so many draws one
    drawn = [i for answer in answers for i in answer.ids]  # would hit the 20 ids above
    assert len(drawn) > 500
    assert 290 < max(drawn) < 300


def test_a_sample_of_a_tokenizer_without_a_begin_of_text(tiny_store, tmp_path):
    resolved, store = resolve(config(tiny_store, tmp_path / "r"))
    tokenizer = store.tokenizer()
    tokenizer.bos_id, tokenizer.start = None, []
    assert isinstance(Trained(initial_model(resolved)[0].eval(), tokenizer, resolved).sample(), str)
