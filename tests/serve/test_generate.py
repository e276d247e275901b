"""Sampling: greedy equals the full forward pass, it stops at the end token, prompts are bounded."""

import pytest
import torch

from seedbed.config import Config
from seedbed.init import initialize_
from seedbed.model import Decoder
from seedbed.serve.generate import generate, sample


@pytest.fixture(scope="module")
def model() -> Decoder:
    shape = ["model.vocab_size=40", "model.d_model=32", "model.n_layers=2", "model.max_seq_len=24"]
    model = Decoder(Config.load(None, shape).model)
    initialize_(model, "gamma", gamma=0.3, seed=1)
    return model


PROMPT = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def test_greedy_is_the_argmax_of_the_full_forward_pass(model):
    out = generate(model, PROMPT, 10, temperature=0.0)
    ids = PROMPT
    with torch.no_grad():
        for _ in range(10):
            ids = torch.cat((ids, model(ids)[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(out, ids)
    assert torch.equal(generate(model, PROMPT, 10, temperature=1e-4), out)  # case 45


def test_rows_do_not_depend_on_the_batch(model):
    both = generate(model, PROMPT, 8, temperature=0.0)
    assert torch.equal(both[1:], generate(model, PROMPT[1:], 8, temperature=0.0))


def test_it_stops_where_every_row_has_ended(model):
    greedy = generate(model, PROMPT[:1], 10, temperature=0.0)
    eos = int(greedy[0, 8])
    first = 5 + greedy[0, 5:].tolist().index(eos)
    assert torch.equal(generate(model, PROMPT[:1], 10, eos_id=eos, temperature=0.0), greedy[:, : first + 1])


def test_seeds_repeat_and_differ(model):
    draws = [generate(model, PROMPT, 12, seed=seed).tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_top_k_draws_among_k(model):
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0]]).repeat(200, 1)
    drawn = sample(logits, 1.0, 2, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {1, 2}


def test_prompts_are_bounded(model):
    assert generate(model, PROMPT, 1000, temperature=0.0).shape[1] == 24
    for length in (0, 24):
        with pytest.raises(ValueError, match=r"1 to 23 tokens"):
            generate(model, torch.zeros(1, length, dtype=torch.int64), 1)


def test_only_known_ids_are_drawn(model):
    known = torch.ones(30, dtype=torch.bool)
    known[[0, 7]] = False
    for temperature, top_k in ((1e6, None), (1e6, 29), (0.0, None)):
        out = generate(model, torch.full((100, 1), 3), 20, temperature=temperature, top_k=top_k, known=known)
        drawn = set(out[:, 1:].flatten().tolist())
        assert drawn <= set(range(30)) - {0, 7}
        assert temperature == 0 or len(drawn) == 28
