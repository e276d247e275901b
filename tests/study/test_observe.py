"""What is looked at in a model is what the analyses measure, on the same sequences."""

from pathlib import Path
from typing import Any, get_args

import pytest
import tiny
import torch
from stores import Text, make_store

from seedbed.analysis import attention, residual, weights
from seedbed.api import fit, load
from seedbed.data.store import Store
from seedbed.data.tokenizer import load_tokenizer
from seedbed.eval.heldout import evaluate
from seedbed.files.parts import Parts
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
    make_store(split, tokenizer, folder / "store", seq_len=128, heldout=0.0, packing={"strategy": "none"})
    fit(tiny.config(folder / "store", folder / "run", "model.max_seq_len=128"), tiny.quiet, page=False)
    store = Store(folder / "store")
    assert len(store.split("heldout")) == SEQUENCES
    return load(folder / "run").model, store, folder / "run"


def looks(model: Decoder, store: Store, *names: str) -> dict[str, Any]:
    """As observe, of the held-out documents without the token that ends each, which the analyses do not read."""
    batch = store.split("heldout").windows(range(SEQUENCES))
    batch.doc_ids[batch.ids == store.header["eos_id"]] = -1
    return {name: LOOKS[name](model, batch) for name in names}


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


def test_the_stream_is_that_of_analyze_residual(trained: Any) -> None:
    """Its rows have each document's first token apart; together they are the means here."""
    model, store, run = trained
    found = residual.analyze([run], [], Parts(None, {}), tiny.quiet, documents=None)
    looked = looks(model, store, "residual", "masking")

    def mean(layer: int, column: str) -> float:
        rows = [row for row in found.stream if row.layer == layer]
        return sum(row.count * getattr(row, column) for row in rows) / sum(row.count for row in rows)

    assert looked["residual"]["flow"] == pytest.approx(mean(1, "flow"), rel=1e-5)
    assert looked["residual"]["embed_rms"] == pytest.approx(mean(-1, "rms"), rel=1e-5)
    for layer in looked["residual"]["layers"]:
        for ours, theirs in (("attn", "attn_ratio"), ("mlp", "mlp_ratio"), ("flow", "flow")):
            assert layer[ours] == pytest.approx(mean(layer["layer"], theirs), rel=1e-5)
    for name, masking in looked["masking"].items():
        rows = [row for row in found.norms if row.norm == name]
        theirs = sum(row.count * row.masking for row in rows) / sum(row.count for row in rows)
        assert masking == pytest.approx(theirs, rel=1e-5)


def test_sinks_are_those_of_analyze_attention(trained: Any) -> None:
    model, store, run = trained
    found = attention.analyze([run], [], Parts(None, {}), tiny.quiet, length=128)
    looked = looks(model, store, "sink")["sink"]
    (row,) = found.models
    assert row.documents == SEQUENCES
    assert looked["mean"] == pytest.approx(row.sink, rel=1e-5)
    assert looked["uniform"] == pytest.approx(row.uniform_sink, rel=1e-5)
    assert looked["share_above"] == row.above
    assert looked["largest_layer"] == pytest.approx(max(layer.sink for layer in found.layers), rel=1e-5)
    assert looked["length"] == 128


def test_profiles_are_those_of_the_analysis_of_weights(trained: Any) -> None:
    model, store, run = trained
    found = looks(model, store, "profiles")["profiles"]
    expected = [row for row in weights.analyze(run).profiles if row.role != "attn.qkv"]
    assert [(row["role"], row["layer"], row["depth"]) for row in found] == [
        (r.role, r.layer, r.depth) for r in expected
    ]
    for row, other in zip(found, expected, strict=True):
        assert row["rms"] == pytest.approx(other.rms, rel=1e-5)
        assert row["entropy_rank"] == pytest.approx(other.entropy_rank, rel=1e-4)
