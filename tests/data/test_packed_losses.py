"""What `prepare` packed trains as its documents do: the loss of each token is that of its document alone."""

import pytest
import torch
from sample_texts import TEXTS
from stores import Text, make_store
from torch import Tensor
from torch.nn import functional as F

from seedbed.config import Config
from seedbed.data.document import Piece
from seedbed.data.encode import Encoder
from seedbed.data.split import IGNORED
from seedbed.data.store import Store
from seedbed.init import initialize_
from seedbed.model import Decoder

SEQ_LEN = 56
KINDS = ["none", "doc_reset", "continuous"]
PARTS = [text[:size] for text in TEXTS[:4] for size in (9, 16, 24, 32, 40)]


@pytest.fixture(scope="module")
def model(tokenizer) -> Decoder:
    shape = [f"model.vocab_size={tokenizer.vocab_size}", "model.d_model=32", "model.n_layers=2"]
    model = Decoder(Config.load(None, [*shape, "model.max_seq_len=256", "model.position=rope"]).model)
    initialize_(model, "gamma", gamma=0.5, seed=1)
    return model


def losses(logits: Tensor, targets: Tensor) -> Tensor:  # [B, T, V], [B, T] -> [B, T]
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)


@pytest.mark.parametrize("repeat", [1, 12])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["simple", "bfd", "bfd_split"])
@torch.no_grad()
def test_packed_equals_unpacked(model, tokenizer, tmp_path, strategy, kind, repeat):
    """Documents that fit into a bin, and where ``repeat`` is above 1 also longer ones, of which each run in a bin is
    compared with the same run alone, at the positions that it has in its document."""
    texts = [f"{chr(65 + number)} {part * (repeat if number % 3 == 0 else 1)}" for number, part in enumerate(PARTS)]
    packing = {"strategy": strategy, "position_ids": kind}
    make_store([Text(text, text, "train") for text in texts], tokenizer, tmp_path / "s", SEQ_LEN, packing=packing)
    store = Store(tmp_path / "s")
    split = store.split("train")
    batch = split.windows(range(len(split)))
    packed = losses(model(batch.ids, batch.doc_ids, positions=batch.positions), batch.targets)
    documents = [
        torch.from_numpy(Encoder(tokenizer, None).encode([[Piece(text, True)]], [text])[0].ids.astype("int64"))
        for text in texts
    ]
    assert (max(map(len, documents)) > SEQ_LEN) == (repeat > 1)
    found, split_runs = set(), 0
    for row in range(len(split)):
        segments, real = split.segments(row)
        ends = [*segments["offset"][1:].tolist(), real]
        for segment, end in zip(segments, ends, strict=True):
            start, place = int(segment["offset"]), int(segment["position"])
            run = batch.ids[row, start:end]
            seen = [
                *run.tolist(),
                *(token for token in [int(segment["next"])] if token >= 0),
            ]  # a run may be a begin of text alone
            number = next(i for i, ids in enumerate(documents) if ids[place : place + len(seen)].tolist() == seen)
            ids = documents[number]
            whole = place == 0 and len(run) == len(ids)
            split_runs += not whole
            targets = torch.full_like(run, IGNORED)
            goes_on = strategy != "bfd"  # the last token of a run predicts the next one in another bin
            following = ids[place + 1 : place + len(run) + goes_on]
            targets[: len(following)] = following
            assert torch.equal(batch.targets[row, start:end], targets)
            positions = torch.arange(place, place + len(run))[None]
            alone = losses(model(run[None], positions=positions), targets[None])[0]
            torch.testing.assert_close(packed[row, start:end], alone, rtol=0, atol=1e-5)
            found.add((number, place))
    assert {number for number, _ in found} == set(range(len(texts)))
    assert (batch.doc_ids.max(dim=1).values > 0).any()  # some bins hold several documents
    assert split_runs > 0 or (strategy != "simple" and repeat == 1)
