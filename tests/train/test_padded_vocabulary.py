"""A vocabulary padded to a multiple: the model takes the padded size, and never writes an id of no token."""

import warnings

import pytest
from stores import Text, make_store
from tiny import config, sentences

from seedbed import api
from seedbed.api import Trained
from seedbed.data.bpe import train_tokenizer
from seedbed.data.store import Store
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


@pytest.fixture
def written(monkeypatch) -> list[list[int]]:
    """Ids, with those of the prompt, of every text that is generated."""
    rows = []

    def generate(*arguments):
        out = original(*arguments)
        rows.append(out[0].tolist())
        return out

    original = api.generate
    monkeypatch.setattr(api, "generate", generate)
    return rows


def test_only_ids_of_tokens_are_written(padded_store, tmp_path, written):
    resolved, _ = resolve(config(padded_store, tmp_path / "r"))
    trained = Trained(initial_model(resolved)[0].eval(), Store(padded_store).tokenizer(), resolved)
    for seed in range(30):  # nearly uniform: of so many draws one would hit the 20 ids above
        trained.continue_text("", 31, temperature=1e6, seed=seed)
    drawn = [i for row in written for i in row[1:]]
    assert len(drawn) > 500
    assert 290 < max(drawn) < 300


def test_a_tokenizer_without_a_begin_of_text(tiny_store, tmp_path, written):
    resolved, store = resolve(config(tiny_store, tmp_path / "r"))
    tokenizer = store.tokenizer()
    tokenizer.bos_id = None
    trained = Trained(initial_model(resolved)[0].eval(), tokenizer, resolved)
    trained.continue_text("a", 3)
    trained.continue_text("", 3)
    assert written[0][:-3] == tokenizer.encode("a")
    assert written[1][:-3] == [tokenizer.eos_id]
