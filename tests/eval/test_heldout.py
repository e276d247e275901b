"""Held-out loss: weighted by tokens, in bits of raw bytes, the same in any batch size."""

import math
from pathlib import Path

import pytest
import torch
from stores import Text, make_store
from torch.nn import functional as F

from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.errors import GuardStop
from seedbed.eval.heldout import evaluate, evenly
from seedbed.init import initialize_
from seedbed.model import Decoder


def model_of(store: Store, **_: object) -> Decoder:
    vocab = store.header["vocab_size"]
    shape = [f"model.vocab_size={vocab}", "model.d_model=16", "model.n_layers=1", "model.max_seq_len=32"]
    model = Decoder(Config.load(None, [*shape, "model.attention.n_heads=2"]).model)
    initialize_(model, "gamma", gamma=0.25, seed=3)
    return model


def token_bytes(store: Store) -> torch.Tensor:
    return torch.from_numpy(store.tokenizer().token_bytes().astype("int64"))


@pytest.mark.parametrize("batch_size", [1, 5, 7, 1000])
def test_any_batch_size_gives_the_same_token_weighted_mean(tiny_store, batch_size):  # cases 24, 46
    store = Store(tiny_store)
    split, model = store.split("heldout"), model_of(store)
    assert len(split) % 5  # the last batch is ragged
    result = evaluate(model, split, token_bytes(store), None, batch_size)
    nats, tokens = 0.0, 0
    for index in range(len(split)):
        ids, targets, doc_ids, _ = split.windows([index])
        with torch.no_grad():
            nats += F.cross_entropy(model(ids, doc_ids)[0], targets[0], reduction="sum").item()
        tokens += int((targets != -100).sum())
    assert result["tokens"] == tokens
    assert result["nats_per_token"] == pytest.approx(nats / tokens, rel=1e-6)


def test_bits_a_byte_count_the_raw_bytes_of_the_documents(tiny_store, tmp_path):  # case 47
    texts = ["déjà vu 中文 \U0001f600", "plain", "e\u0301 \r\n\t"]
    tokenizer = Store(tiny_store).tokenizer()
    documents = [Text(str(i), text, "heldout" if i else "train") for i, text in enumerate(texts)]
    make_store([*documents, Text("x", texts[0], "heldout")], tokenizer, tmp_path / "s", seq_len=16)
    store = Store(tmp_path / "s")
    result = evaluate(model_of(store), store.split("heldout"), token_bytes(store), None, 2)
    assert result["bytes"] == sum(len(text.encode()) for text in [*texts[1:], texts[0]])
    nats = result["nats_per_token"] * result["tokens"]
    assert result["bits_per_byte"] == pytest.approx(nats / math.log(2) / result["bytes"])


def test_a_part_is_spread_evenly_and_always_the_same(tiny_store):
    assert evenly(10, 4) == [0, 2, 5, 7]
    assert evenly(3, 8) == evenly(3, None) == [0, 1, 2]
    store = Store(tiny_store)
    arguments = (model_of(store), store.split("heldout"), token_bytes(store), 5, 2)
    assert evaluate(*arguments) == evaluate(*arguments)


def test_the_model_is_left_in_its_mode(tiny_store):
    store = Store(tiny_store)
    model = model_of(store).train()
    evaluate(model, store.split("heldout"), token_bytes(store), 1, 1)
    assert model.training


def test_an_empty_heldout_split_is_an_error(tiny_store, tmp_path: Path):
    make_store([Text("a", "only one", "train")], Store(tiny_store).tokenizer(), tmp_path / "s", seq_len=16)
    store = Store(tmp_path / "s")
    with pytest.raises(GuardStop, match="held-out split has no supervised token"):
        evaluate(model_of(store), store.split("heldout"), token_bytes(store), None, 1)
