"""Models of Transformers by their own ``generate``: greedy equals theirs, options mean what they mean for ours."""

import pytest
import torch
from foreign import LENGTH, VOCAB, build

from seedbed.data.tokenizer import load_tokenizer
from seedbed.hub.models import LanguageModel
from seedbed.serve.generate import end_ids, generate
from seedbed.serve.options import Options

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3, 2], [8]]
GREEDY = Options(max_new_tokens=8, temperature=0.0)


@pytest.fixture(scope="module")
def llama(foreign_tokenizer_folder) -> LanguageModel:
    return LanguageModel("llama", build("llama"), load_tokenizer(foreign_tokenizer_folder), LENGTH)


def theirs(module, prompt: list[int], **options) -> list[int]:
    """What `generate` writes by itself behind one prompt."""
    ids = torch.tensor([prompt])
    found = module.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=1, **options)
    return found[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "gemma2", "bloom"])
def test_greedy_equals_theirs_in_batches_too(family, foreign_tokenizer_folder):
    model = LanguageModel(family, build(family), load_tokenizer(foreign_tokenizer_folder), LENGTH)
    answers = generate(model, PROMPTS, GREEDY, ends=(), batch_size=3)
    expected = [theirs(model.module, prompt, max_new_tokens=8, eos_token_id=VOCAB) for prompt in PROMPTS]
    assert [answer.ids for answer in answers] == expected


def test_the_penalty_and_the_end_token_are_theirs(llama):
    whole = theirs(llama.module, PROMPTS[0], max_new_tokens=20, eos_token_id=VOCAB, repetition_penalty=1.5)
    end = whole[5]
    expected = theirs(llama.module, PROMPTS[0], max_new_tokens=20, eos_token_id=end, repetition_penalty=1.5)
    options = Options(max_new_tokens=20, temperature=0.0, repetition_penalty=1.5)
    answer = generate(llama, PROMPTS[:1], options, ends={end})[0]
    assert answer.ids == expected == whole[: whole.index(end) + 1]
    assert answer.finish == "stop"


def test_rows_are_drawn_by_their_own_seeds(llama):
    options = Options(max_new_tokens=8, temperature=1.0)
    together = generate(llama, PROMPTS, options, [4, 5, 4, 6])
    for prompt, seed, answer in zip(PROMPTS, [4, 5, 4, 6], together, strict=True):
        assert generate(llama, [prompt], options, [seed])[0].ids == answer.ids


def test_its_own_generation_configuration_adds_nothing_and_stays(llama):
    before = llama.module.generation_config
    before.min_new_tokens, before.top_k, before.eos_token_id = 7, 1, [1, 9]
    assert end_ids(llama) == {llama.tokenizer.eos_id, 1, 9}
    text = generate(llama, PROMPTS[:1], Options(max_new_tokens=2, temperature=50.0))[0]
    assert len(text.ids) == 2
    assert llama.module.generation_config is before


def test_an_answer_ends_where_the_model_can_read_no_further(llama):
    answers = generate(llama, [[3] * (LENGTH - 2), [3]], Options(max_new_tokens=5, temperature=0.0), ends=())
    assert [(answer.finish, len(answer.ids)) for answer in answers] == [("context", 2), ("length", 5)]
