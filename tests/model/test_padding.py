"""Rows padded on the left, read with a cache, are what each row is by itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder, KVCache
from seedbed.model import decoder as decoder_module
from seedbed.model.attention import attend, document_mask

KINDS = {
    "gated": ["model.attention.gate=elementwise"],
    "gpt2": ["model.position=learned", "model.norm=layernorm", "model.bias=true", "model.ffn.kind=gelu"],
    "llama": ["model.attention.n_kv_heads=2", "model.rope_scaling={factor: 8, original_max_seq_len: 16}"],
    "olmo2": ["model.norm_placement=post", "model.attention.qk_norm=whole"],
}


def make(kind: str) -> Decoder:
    tiny = ["model.vocab_size=64", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=32"]
    model = Decoder(Config.load(None, [*tiny, "model.norm_eps=1e-5", *KINDS[kind]]).model)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    return model.eval()


def text(rows: int, length: int) -> Tensor:
    return torch.randint(64, (rows, length), generator=torch.Generator().manual_seed(0))


def padded(padding: list[int], length: int) -> tuple[Tensor, Tensor]:
    """Ids [B, length], and their document ids, the first tokens of each row being padding."""
    doc_ids = torch.zeros(len(padding), length, dtype=torch.int64)
    for row, count in enumerate(padding):
        doc_ids[row, :count] = -1
    return text(len(padding), length).masked_fill(doc_ids < 0, 0), doc_ids


@pytest.mark.parametrize("path", ["slices", "mask"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_each_row_is_what_it_is_alone(kind, path, monkeypatch):
    if path == "mask":
        monkeypatch.setattr(decoder_module, "segments", document_mask)
    model, padding = make(kind), [0, 5, 11, 5]
    prompt, doc_ids = padded(padding, 12)
    following = text(4, 20)[:, 12:]  # one token, then two at once, then one by one
    cache = KVCache(model.config, 4, 20)
    found = [model(prompt, doc_ids, cache=cache)]
    for start, stop in ((0, 1), (1, 3), (3, 4), (4, 5)):
        found.append(model(following[:, start:stop], cache=cache))
    logits = torch.cat(found, 1)
    for row, count in enumerate(padding):
        alone = model(torch.cat((prompt[row, count:], following[row, :5]))[None])
        torch.testing.assert_close(logits[row, count:], alone[0], rtol=0, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(7, 9),
)
@torch.no_grad()
def test_whatever_the_padding_and_the_steps(padding, steps, length):
    model = make("llama").double()
    prompt, doc_ids = padded(padding, length)
    following = text(len(padding), sum(steps))
    cache = KVCache(model.config, len(padding), 32, dtype=torch.float64)
    found = [model(prompt, doc_ids, cache=cache)]
    found += [model(piece, cache=cache) for piece in following.split(steps, dim=1)]
    whole = torch.cat((torch.full_like(following, 0), doc_ids), 1).roll(-following.shape[1], 1)  # the pieces belong too
    expected = model(torch.cat((prompt, following), 1), whole)
    real = whole >= 0
    torch.testing.assert_close(torch.cat(found, 1)[real], expected[real], rtol=1e-9, atol=1e-11)


def test_a_row_of_nothing_but_padding_begins_behind_it():
    model = make("gated")
    prompt, doc_ids = padded([4, 0], 4)
    cache = KVCache(model.config, 2, 8)
    model(prompt, doc_ids, cache=cache)
    found = model(text(2, 1), cache=cache)
    torch.testing.assert_close(found[:1], model(text(1, 1)), rtol=0, atol=1e-5)


def test_without_padding_a_step_has_no_mask():
    seen = []
    config = make("llama").config

    def spy(q, k, v, visible):
        seen.append((q.shape[2], tuple(visible.shape) if isinstance(visible, Tensor) else None))
        return attend(q, k, v, visible)

    model = Decoder(config, attend=spy)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    for doc_ids in (None, torch.zeros(2, 5, dtype=torch.int64), torch.tensor([[-1, 0, 0, 0, 0], [0] * 5])):
        seen.clear()
        cache = KVCache(config, 2, 12)
        model(text(2, 5), doc_ids, cache=cache)
        model(text(2, 1), cache=cache)
        model(text(2, 3), cache=cache)
        rows = 1 if cache.padding is None else 2
        step = None if cache.padding is None else (2, 1, 1, 6)
        assert seen[2:] == [(1, step)] * 2 + [(3, (rows, 1, 3, 9))] * 2


@pytest.mark.parametrize("row", [[0, 0, -1], [-1, 0, 1], [0, -1, 0], [0, 1, 1]])
def test_other_padding_and_packed_documents_are_refused(row):
    model = make("gated")
    cache = KVCache(model.config, 2, 8)
    with pytest.raises(ValueError, match="one document a row: padding, doc_ids below 0, on its left alone"):
        model(text(2, 3), torch.tensor([[-1, 5, 5], row]), cache=cache)
    assert cache.length == 0
