"""Positions come with the bins: what is packed is trained as each document alone, by every kind and attention path."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from tiny import config
from torch import Tensor
from torch.nn import functional as F

from seedbed.analysis.balance import balance
from seedbed.analysis.coordcheck import coord_check
from seedbed.analysis.preflight import measure_arm
from seedbed.analysis.run import snapshot
from seedbed.api import heldout_evaluation
from seedbed.cli.preflight_parts import heldout_batch
from seedbed.config import Config, InitConfig
from seedbed.data.split import IGNORED, Batch, Split
from seedbed.init import initialize_
from seedbed.model import Decoder, KVCache
from seedbed.model import decoder as decoder_module
from seedbed.model.attention import document_mask
from seedbed.train.loop import train_step
from seedbed.train.objective import chunked_cross_entropy
from seedbed.train.setup import resolve, start

PIECES = [  # (row, first, stop, its first token's place in the document) of bins of 24 tokens; row 2 ends in padding
    (0, 0, 7, 1017), (0, 7, 24, 0), (1, 0, 24, 48), (2, 0, 5, 300), (2, 5, 21, 0),
]  # fmt: skip
PAIRS = [("rope", "none"), ("rope", "doc_reset"), ("rope", "continuous"), ("learned", "doc_reset")]
GATED = ["model.attention.gate=elementwise", "model.attention.n_kv_heads=2"]


@cache  # traced once
def model_of(position: str) -> Decoder:
    shape = ["model.vocab_size=64", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=48", *GATED]
    model = Decoder(Config.load(None, [*shape, f"model.position={position}"]).model)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    return model


def packed(kind: str) -> Batch:
    """Three bins with the positions that packing would store."""
    ids = torch.randint(64, (3, 24), generator=torch.Generator().manual_seed(0))
    targets, doc_ids = torch.full_like(ids, IGNORED), torch.full_like(ids, -1)
    positions = torch.arange(24).repeat(3, 1)
    for number, (row, first, stop, place) in enumerate(PIECES):
        targets[row, first : stop - 1] = ids[row, first + 1 : stop]
        doc_ids[row, first:stop] = number
        if kind != "none":
            start = place if kind == "continuous" else 0
            positions[row, first:stop] = torch.arange(start, start + stop - first)
    return Batch(ids, targets, doc_ids, positions)


def losses(logits: Tensor, targets: Tensor) -> Tensor:  # [B, T, V], [B, T] -> [B, T]
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)


def in_segments(model: Decoder, batch: Batch) -> Tensor:
    return model(batch.ids, batch.doc_ids, positions=batch.positions)


def compiled(model: Decoder, batch: Batch) -> Tensor:
    """As torch.compile traces it, run as it is: to make code of it takes long."""
    return torch.compile(model, backend="eager")(batch.ids, batch.doc_ids, positions=batch.positions)


def with_cache(model: Decoder, batch: Batch) -> Tensor:
    """Document by document, each in two parts and a last token."""
    logits = torch.zeros(*batch.ids.shape, 64)
    for row, first, stop, _ in PIECES:
        cache = KVCache(model.config, 1, 24)
        for part in (slice(first, first + 3), slice(first + 3, stop - 1), slice(stop - 1, stop)):
            ids, positions = batch.ids[row, part][None], batch.positions[row, part][None]
            logits[row, part] = model(ids, cache=cache, positions=positions)[0]
    return logits


PATHS: dict[str, Callable[[Decoder, Batch], Tensor]] = {
    "segments": in_segments, "mask": in_segments, "compiled": compiled, "cache": with_cache,
}  # fmt: skip


@pytest.fixture(params=PATHS)
def path(request, monkeypatch) -> Callable[[Decoder, Batch], Tensor]:
    if request.param == "mask":
        monkeypatch.setattr(decoder_module, "segments", document_mask)
    if request.param == "compiled":
        monkeypatch.setattr(decoder_module, "segments", None)  # traced code must not come there
    return PATHS[request.param]


@pytest.mark.parametrize(("position", "kind"), PAIRS)
@torch.no_grad()
def test_each_token_of_a_packed_bin_has_the_loss_of_its_document_alone(path, position, kind):  # cases 17, 22
    model, batch = model_of(position), packed(kind)
    found = losses(path(model, batch), batch.targets)
    alone = torch.zeros_like(found)
    for row, first, stop, _ in PIECES:
        alone[row, first:stop] = losses(
            model(batch.ids[row : row + 1, first:stop]), batch.targets[row, first:stop][None]
        )
    assert alone.max() > 3  # there is something to compare
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("position", "kind"), PAIRS)
@torch.no_grad()
def test_an_edited_document_moves_no_logit_of_its_neighbour(path, position, kind):  # case 17
    model, batch = model_of(position), packed(kind)
    edited = batch._replace(ids=batch.ids.clone())
    edited.ids[0, :7] = (edited.ids[0, :7] + 5) % 64
    before, after = path(model, batch), path(model, edited)
    assert torch.equal(before[0, 7:], after[0, 7:])
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0, :7], after[0, :7])


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("position", ["rope", "learned"])
def test_a_row_of_nothing_but_padding_is_finite_and_has_no_gradient(position, mask, monkeypatch):  # case 21
    if mask:
        monkeypatch.setattr(decoder_module, "segments", document_mask)
    batch = packed("doc_reset")
    padding = Batch(*(torch.full_like(x[:1], y) for x, y in zip(batch, (63, IGNORED, -1, 0), strict=True)))
    gradients = []
    for rows in (batch, Batch(*map(torch.cat, zip(batch, padding, strict=True))), padding):
        model = model_of(position)
        model.zero_grad()
        hidden = model(rows.ids, rows.doc_ids, hidden=True, positions=rows.positions)
        assert hidden.isfinite().all()
        chunked_cross_entropy(hidden, model.head_weight, rows.targets, scale=0.1).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for without, beside, alone in zip(*gradients, strict=True):
        torch.testing.assert_close(beside, without, rtol=1e-5, atol=1e-6)
        assert not alone.any()


@torch.no_grad()
def test_given_positions_are_used_as_they_are():
    ids = packed("none").ids
    positions = torch.randint(48, ids.shape, generator=torch.Generator().manual_seed(1))
    learned, rope = model_of("learned"), model_of("rope")
    x, _, _ = learned.embedded(ids, torch.zeros_like(ids), positions=positions)
    assert torch.equal(x, learned.embed(ids) + learned.pos.weight[positions])
    plain, far = (rope(ids, positions=torch.arange(24)[None] + start) for start in (0, 4096))
    torch.testing.assert_close(far, plain, rtol=0, atol=1e-3)  # turns depend on distances
    assert (rope(ids, positions=2 * torch.arange(24)[None]) - plain).abs().max() > 0.1


@pytest.mark.parametrize("outside", [-1, 48])
def test_a_learned_position_outside_the_table_is_refused(outside):
    batch = packed("none")
    batch.positions[1, 5] = outside
    with pytest.raises(ValueError, match=rf"positions .*{outside}.* leave the table, model\.max_seq_len=48"):
        model_of("learned")(batch.ids, batch.doc_ids, positions=batch.positions)
    model_of("rope")(batch.ids, batch.doc_ids, positions=batch.positions)


def of_preflight(c, store, job):
    measure_arm(c, heldout_batch(c, store, 2))


def of_balance(c, store, job):
    balance(c.model, 0.5, c.init, heldout_batch(c, store, 2), 0)


CONSUMERS = {
    "training": lambda c, store, job: train_step(job),
    "evaluation": lambda c, store, job: heldout_evaluation(job, store)(),
    "sinks of a run": lambda c, store, job: snapshot(job.model, store),
    "preflight": of_preflight,
    "balance": of_balance,
    "coordinate check": lambda c, store, job: coord_check(
        c, InitConfig(law="normal"), (32, 64), 1, 1, store.split("train")
    ),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_what_was_packed_is_what_the_model_is_given(tiny_store, tmp_path, monkeypatch, name):
    windows, embedded, given = Split.windows, Decoder.embedded, []

    def moved(self, indices):
        batch = windows(self, indices)
        return batch._replace(positions=batch.positions + 5000)

    def watched(self, ids, doc_ids=None, cache=None, positions=None):
        given.append(positions)
        return embedded(self, ids, doc_ids, cache, positions)

    monkeypatch.setattr(Split, "windows", moved)
    monkeypatch.setattr(Decoder, "embedded", watched)
    c, store = resolve(config(tiny_store, tmp_path / "r"))
    job = start(c, tmp_path / "r", store)
    CONSUMERS[name](c, store, job)
    assert given
    assert all(positions is not None and positions.min() >= 5000 for positions in given)
