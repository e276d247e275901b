"""Real weights: SmolLM2-135M-Instruct in GGUF, from the package that `make test-slow` installs."""

import pytest
import torch

from seedbed.data.batching import padded
from seedbed.data.texts import read_texts
from seedbed.hub import checkpoints
from seedbed.hub.checkpoints import fingerprint, open_checkpoint

pytestmark = pytest.mark.slow

ENGLISH = [
    "The capital of France is Paris, which lies on the river Seine.",
    "Water boils at one hundred degrees Celsius at sea level, and it freezes at zero degrees.",
    "She opened the door, looked around the empty room, and sat down on the old wooden chair by the window.",
    "A triangle has three sides. The sum of its angles is one hundred and eighty degrees.",
]


def test_its_matrices(smollm2, smollm2_model, monkeypatch):
    monkeypatch.setattr(checkpoints, "in_memory", lambda *_: (smollm2_model.module, {}))  # it was read once
    opened = open_checkpoint(smollm2)
    parts = [part for fact in opened.facts for part in fact.parts() if part.is_matrix]
    assert len(parts) == 30 * 7 + 1  # of each layer, and the embedding, to which the head is tied
    assert {part.role for part in parts} == {
        "embed", "attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down",
    }  # fmt: skip
    key = opened.read("model.layers.29.self_attn.k_proj.weight")
    assert (key.shape, key.dtype) == ((192, 576), torch.float32)
    assert 0.01 < float(key.std()) < 1
    assert list(fingerprint(opened)) == [smollm2.name]


def test_it_reads_english(smollm2_model, tmp_path):
    (tmp_path / "few").mkdir()
    for number, text in enumerate(ENGLISH):
        (tmp_path / "few" / f"{number}.txt").write_text(text)
    opened = smollm2_model
    texts = read_texts([tmp_path / "few"], opened.tokenizer, 64).texts
    ids, doc_ids = padded(texts, opened.tokenizer.eos_id)
    losses, ranks = opened.scores(ids, doc_ids, ranks=True)
    predicted = doc_ids >= 0
    predicted[:, 0] = False
    assert 1 < float(losses[predicted].mean()) < 4
    assert ranks is not None and float((ranks[predicted] == 0).float().mean()) > 0.2
    for row, text in enumerate(texts):
        alone = opened.losses(torch.tensor([text.ids]))[0]
        assert torch.allclose(losses[row, : len(text.ids)], alone, atol=1e-3)
