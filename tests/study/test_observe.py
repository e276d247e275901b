"""What is looked at in a model is what the analyses measure, on the same sequences."""

from pathlib import Path
from typing import Any, get_args

import pytest
import tiny
import torch
from stores import Text, make_store

from seedbed.analysis.parts import Parts
from seedbed.api import fit, load
from seedbed.data.store import Store
from seedbed.data.tokenizer import load_tokenizer
from seedbed.eval.heldout import evaluate
from seedbed.model import Decoder
from seedbed.study.observe import LOOKS, SEQUENCES, observe
from seedbed.study.spec import Look


@pytest.fixture(scope="module")
def trained(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, Store, Path]:
    """A model trained for six steps on a store whose 16 held-out bins are a document each."""
    folder = tmp_path_factory.mktemp("observed")
    texts = [text for text in tiny.sentences(400, seed=3) if 100 < len(text) < 200]
    split = [Text(str(i), text, "heldout" if i < SEQUENCES else "train") for i, text in enumerate(texts)]
    tokenizer = load_tokenizer(tiny_store / "tokenizer")
    packing = {"method": "pad", "seq_len": 128}
    make_store(split, tokenizer, folder / "store", seq_len=128, heldout=0.0, packing=packing)
    fit(tiny.config(folder / "store", folder / "run", "model.max_seq_len=128"), tiny.quiet, page=False)
    store = Store(folder / "store")
    assert len(store.split("heldout")) == SEQUENCES
    return load(folder / "run").model, store, folder / "run"


def parts(folder: Path) -> Any:
    return Parts(folder / "parts.jsonl", {})


def test_every_look_has_a_name_in_a_study() -> None:
    assert set(LOOKS) == set(get_args(Look))


def test_nothing_asked_nothing_measured(trained: Any) -> None:
    model, store, _ = trained
    assert observe(model, store, []) == {}


def test_losses_of_tokens_are_those_of_the_evaluation(trained: Any) -> None:
    model, store, _ = trained
    documents = observe(model, store, ["token_losses"])["token_losses"]
    assert len(documents) == SEQUENCES
    token_bytes = torch.from_numpy(store.tokenizer().token_bytes().astype("int64"))
    found = evaluate(model, store.split("heldout"), token_bytes, None, 4)
    losses = [loss for document in documents for loss in document]
    assert len(losses) == found["tokens"]
    assert sum(losses) / len(losses) == pytest.approx(found["nats_per_token"], abs=1e-5)
