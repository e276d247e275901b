"""The filters equal Transformers' processors; draws follow the probabilities and each row's own number alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedbed.errors import InputError
from seedbed.serve.options import Options
from seedbed.serve.sampling import (
    choose,
    draw,
    filtered,
    min_p_filtered,
    repetition_penalized,
    top_k_filtered,
    top_p_filtered,
)

LOGITS = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)) * 3
UNIFORM = torch.linspace(0.05, 0.95, 6, dtype=torch.float64)
ROWS = st.integers(0, 2**31).map(lambda seed: torch.randn(3, 20, generator=torch.Generator().manual_seed(seed)) * 4)


@pytest.mark.parametrize("value", [0.01, 0.3, 0.9, 0.999])
def test_filters_equal_those_of_transformers(value):
    theirs = pytest.importorskip("transformers")
    assert torch.equal(top_p_filtered(LOGITS, value), theirs.TopPLogitsWarper(value)(None, LOGITS))
    assert torch.equal(min_p_filtered(LOGITS, value), theirs.MinPLogitsWarper(value)(None, LOGITS))
    k = int(value * 50) + 1
    tied = LOGITS.round()
    for logits in (LOGITS, tied):
        assert torch.equal(top_k_filtered(logits, k), theirs.TopKLogitsWarper(k)(None, logits))


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_the_penalty_equals_that_of_transformers(penalty):
    theirs = pytest.importorskip("transformers").RepetitionPenaltyLogitsProcessor(penalty)
    ids = torch.randint(50, (6, 30), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros(6, 50, dtype=torch.bool).scatter_(1, ids, True)
    assert torch.equal(repetition_penalized(LOGITS, seen, penalty), theirs(ids, LOGITS))


def test_all_filters_equal_those_of_transformers_in_their_order():
    transformers = pytest.importorskip("transformers")
    asked = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05}
    config = transformers.GenerationConfig(do_sample=True, **asked)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=50, hidden_size=8, intermediate_size=8, num_attention_heads=1)
    )
    processors = model._get_logits_processor(config, input_ids_seq_length=1)
    assert len(processors) == 4
    assert torch.equal(filtered(LOGITS, Options(**asked)), processors(torch.zeros(6, 1), LOGITS))


def test_a_draw_by_hand():
    logits = torch.tensor([[0.2, 0.0, 0.5, 0.3]]).log()
    for uniform, expected in ((0.0, 0), (0.199, 0), (0.201, 2), (0.699, 2), (0.701, 3), (1 - 2**-53, 3)):
        assert draw(logits, torch.tensor([uniform], dtype=torch.float64)).item() == expected


@given(ROWS, st.floats(0.01, 1.0))
def test_top_p_keeps_the_fewest_tokens_of_that_mass(logits, p):
    probabilities = logits.softmax(-1)
    for row, kept in zip(probabilities, top_p_filtered(logits, p).isfinite(), strict=True):
        assert row[kept].sum() >= p - 1e-5
        assert row[kept].sum() - row[kept].min() < p + 1e-5
        assert kept.all() or row[kept].min() >= row[~kept].max()


@given(ROWS, st.permutations(range(20)), st.sampled_from([{"top_p": 0.7}, {"top_k": 5}, {"min_p": 0.1}]))
def test_the_order_of_the_ids_changes_no_filter(logits, order, options):
    options = Options(**options)
    assert torch.allclose(filtered(logits[:, order], options), filtered(logits, options)[:, order])


@given(ROWS, st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
def test_a_row_is_drawn_as_if_it_were_alone(logits, numbers):
    uniform, options = torch.tensor(numbers, dtype=torch.float64), Options(temperature=1.0, top_k=7)
    together = choose(logits, options, uniform)
    assert together.tolist() == [choose(logits[[i]], options, uniform[[i]]).item() for i in range(3)]
    assert filtered(logits, options).gather(1, together[:, None]).isfinite().all()


def test_draws_follow_the_probabilities():
    numbers = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    drawn = draw(LOGITS[:1].expand(10_000, -1), numbers).bincount(minlength=50) / 10_000
    assert (drawn - LOGITS[0].softmax(0)).abs().max() < 2e-4


def test_a_temperature_next_to_nothing_is_greedy():  # case 45
    for temperature in (0.0, 1e-4):
        assert torch.equal(choose(LOGITS, Options(temperature=temperature), None), LOGITS.argmax(1))
    assert torch.equal(choose(LOGITS, Options(temperature=2e-3), UNIFORM), LOGITS.argmax(1))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_new_tokens", (0, -1)),
        ("temperature", (-0.1, float("nan"), float("inf"))),
        ("top_k", (0, -3)),
        ("top_p", (0.0, 1.1, float("nan"))),
        ("min_p", (-0.1, 2.0)),
        ("repetition_penalty", (0.0, float("inf"), float("nan"))),
        ("stop", (("",), ("a", ""))),
    ],
)
def test_options_out_of_range_are_named(name, values):
    for value in values:
        with pytest.raises(InputError, match=f"^{name} "):
            Options(**{name: value})
