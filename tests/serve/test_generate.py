"""Generation equals the full forward pass token for token; a row does not depend on what is beside it."""

from dataclasses import replace

import pytest
import torch

from seedbed.errors import InputError
from seedbed.hub.models import LanguageModel
from seedbed.serve.generate import batched, end_ids, generate
from seedbed.serve.options import Options
from seedbed.serve.sampling import repetition_penalized

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3, 2], [38, 4, 62], [8]]
GREEDY = Options(max_new_tokens=12, temperature=0.0)
SHAPES = {
    "plain": [],
    "grouped": ["model.attention.n_heads=4", "model.attention.n_kv_heads=2", "model.attention.qk_norm=true"],
    "gated": ["model.attention.gate=elementwise", "model.tied=true"],
    "gpt2": ["model.position=learned", "model.norm=layernorm", "model.bias=true", "model.ffn.kind=gelu"],
    "scaled": ["model.attention.gate=headwise", "model.attention.scale=0.5", "model.output_multiplier=3.0"],
}


def by_hand(model: LanguageModel, prompt: list[int], count: int, penalty: float = 1.0) -> list[int]:
    """The likeliest ids, one after the other, without cache, batch or anything of ours but the model."""
    ids, n = list(prompt), model.tokenizer.vocab_size
    with torch.no_grad():
        for _ in range(count):
            logits = model.module(torch.tensor([ids]))[:, -1, :n]
            seen = torch.zeros(1, n, dtype=torch.bool)
            seen[0, ids] = True
            ids.append(int(repetition_penalized(logits, seen, penalty).argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("steps", [1, 1000], ids=["packed", "usual"])
@pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES)
def test_greedy_is_the_argmax_of_the_full_forward_pass(make_model, overrides, steps, monkeypatch):
    monkeypatch.setattr("seedbed.serve.packed.STEPS", steps)
    model = make_model(*overrides)
    answers = generate(model, PROMPTS, GREEDY, ends=())
    assert [a.ids for a in answers] == [by_hand(model, prompt, 12) for prompt in PROMPTS]
    assert len({token for a in answers for token in a.ids}) > 10
    cold = Options(max_new_tokens=12, temperature=1e-4)  # case 45
    assert [a.ids for a in generate(model, PROMPTS, cold, ends=())] == [a.ids for a in answers]


@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("options", [GREEDY, Options(max_new_tokens=12, temperature=1.0, top_k=9)])
def test_a_row_does_not_depend_on_what_is_beside_it(tiny_model, options, batch_size):
    seeds = [7, 7, 3, 2**62, 0]
    answers = generate(tiny_model, PROMPTS, options, seeds, batch_size=batch_size)
    for prompt, seed, answer in zip(PROMPTS, seeds, answers, strict=True):
        alone = generate(tiny_model, [prompt], options, [seed])[0]
        assert (answer.ids, answer.text, answer.finish) == (alone.ids, alone.text, alone.finish)


def test_seeds_repeat_and_differ(tiny_model):
    options = Options(max_new_tokens=12, temperature=1.0)
    draws = [generate(tiny_model, PROMPTS[:1], options, [seed])[0].ids for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert [a.ids for a in generate(tiny_model, PROMPTS[:1] * 2, options)] == draws[1:]


def test_draws_are_of_the_multiplied_logits(make_model):
    """A multiplier is a temperature: at 1/4 the draws are those of the plain model at temperature 4."""
    scaled, plain = make_model("model.output_multiplier=0.25"), make_model()
    drawn = [a.ids for a in generate(scaled, PROMPTS, Options(12, temperature=1.0))]
    assert drawn == [a.ids for a in generate(plain, PROMPTS, Options(12, temperature=4.0))]
    assert drawn != [a.ids for a in generate(plain, PROMPTS, Options(12, temperature=1.0))]


def test_rows_end_each_by_itself(tiny_model):
    whole = [by_hand(tiny_model, prompt, 12) for prompt in PROMPTS]
    ends = {whole[0][4], whole[2][7]}
    for answer, ids in zip(generate(tiny_model, PROMPTS, GREEDY, ends=ends), whole, strict=True):
        last = next((i for i, token in enumerate(ids) if token in ends), None)
        assert answer.finish == ("length" if last is None else "stop")
        assert answer.ids == (ids if last is None else ids[: last + 1])
        assert answer.text == tiny_model.tokenizer.decode(ids[:last])


def test_the_penalty_counts_the_prompt_and_what_was_written(tiny_model):
    options = Options(max_new_tokens=12, temperature=0.0, repetition_penalty=1.8)
    answers = generate(tiny_model, PROMPTS, options, ends=())
    assert [a.ids for a in answers] == [by_hand(tiny_model, prompt, 12, 1.8) for prompt in PROMPTS]
    assert [a.ids for a in answers] != [a.ids for a in generate(tiny_model, PROMPTS, GREEDY, ends=())]


def test_an_answer_ends_where_the_model_can_read_no_further(tiny_model):
    long = Options(max_new_tokens=1000, temperature=0.0)
    for prompt, answer in zip(PROMPTS, generate(tiny_model, PROMPTS, long, ends=()), strict=True):
        assert (answer.finish, len(answer.ids)) == ("context", 48 - len(prompt))
        assert answer.ids == by_hand(tiny_model, prompt, 48 - len(prompt))


@pytest.mark.parametrize("length", [0, 48, 60])
def test_prompts_are_bounded(tiny_model, length):
    with pytest.raises(InputError, match=rf"prompt 2: {length} tokens; tiny continues 1 to 47"):
        generate(tiny_model, [[1], [1] * length], GREEDY)


def test_only_ids_of_tokens_are_drawn(tiny_model, monkeypatch):
    """Case 48: the model has 20 outputs above the vocabulary, and foreign vocabularies have holes."""
    known = tiny_model.tokenizer.known()
    known[[5, 17]] = False
    monkeypatch.setattr(tiny_model.tokenizer, "known", lambda: known)
    tiny_model = replace(tiny_model)  # which has not looked at them yet
    for options in (Options(20, 1e6), Options(20, 1e6, top_k=299), Options(20, 1e6, top_p=0.99)):
        answers = generate(tiny_model, [[3]] * 60, options, ends=(), batch_size=60)
        drawn = {token for answer in answers for token in answer.ids}
        assert drawn.isdisjoint({5, 17})
        assert 285 < len(drawn) <= 298
        assert max(drawn) < 300


def test_text_is_heard_while_it_is_written(tiny_model):
    heard = {row: [] for row in range(5)}
    answers = generate(tiny_model, PROMPTS, GREEDY, batch_size=2, heard=lambda row, text: heard[row].append(text))
    assert ["".join(parts) for parts in heard.values()] == [answer.text for answer in answers]
    assert max(map(len, heard.values())) > 5


def test_the_model_is_left_as_it_was(make_model):
    model = make_model()
    model.module.train()
    generate(model, [[1, 2]], GREEDY)
    assert model.module.training
    assert model.module(torch.tensor([[1, 2]])).requires_grad


def test_prompts_of_like_length_are_together():
    assert list(batched([5, 1, 9, 5], 2, longest=9)) == [[2, 0], [3, 1]]
    assert list(batched([5, 1, 9, 5, 5], 2, longest=4)) == [[2], [0, 3], [4], [1]]
    assert list(batched([5, 3, 9, 5], 8, longest=5)) == [[2], [0, 3, 1]]


def test_end_ids_are_of_the_tokenizer(tiny_model):
    assert end_ids(tiny_model) == {tiny_model.tokenizer.eos_id}
